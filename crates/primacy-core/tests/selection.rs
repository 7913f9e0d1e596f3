//! What holds of ranks, classes, patterns and hand-overs for preference, compared with dumb twins of them.

use std::cmp::Ordering;
use std::time::Duration;

use primacy_core::select::{
    Classes, FailBack, FailBackWatch, Names, Pattern, Rank, SCORES_MAX, Score, Scores, Selector,
};
use primacy_core::{Instant, Label};
use proptest::collection::vec;
use proptest::prelude::*;

fn score(thousandths: i64) -> Score {
    Score::from_thousandths(thousandths).expect("within bounds")
}

/// Elements near 0 and near the ends, so that equal beginnings and zeros at the end happen.
fn elements() -> impl Strategy<Value = Vec<i32>> {
    vec(prop_oneof![6 => -2..3, 1 => any::<i32>(), 1 => Just(i32::MIN), 1 => Just(i32::MAX)], 0..=Rank::ELEMENTS_MAX)
}

fn compare_with_zeros(a: &[i32], b: &[i32]) -> Ordering {
    let at = |elements: &[i32], index| elements.get(index).copied().unwrap_or(0);
    let pairs = (0..a.len().max(b.len())).map(|index| at(a, index).cmp(&at(b, index)));
    pairs.fold(Ordering::Equal, Ordering::then)
}

/// A width, and a margin that fits it.
fn classes() -> impl Strategy<Value = Classes> {
    (1i64..5_000, 0.0..=1.0).prop_map(|(width, share)| {
        let margin = (width as f64 * share) as i64;
        Classes::new(score(width), score(margin)).expect("they fit")
    })
}

fn class(classes: &mut Classes, thousandths: i64) -> i64 {
    -i64::from(classes.observe(score(thousandths)).expect("near 0"))
}

/// The definition, border by border.
fn step_by_step(from: i64, thousandths: i64, width: i64, margin: i64) -> i64 {
    let mut class = from;
    while thousandths >= (class + 1) * width + margin {
        class += 1;
    }
    while thousandths < class * width - margin {
        class -= 1;
    }
    class
}

fn fits(pattern: &[u8], label: &[u8]) -> bool {
    match (pattern.split_first(), label.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((b'*', rest)), _) => (0..=label.len()).any(|taken| fits(rest, &label[taken..])),
        (Some((wanted, rest)), Some((first, others))) => wanted == first && fits(rest, others),
        (Some(_), None) => false,
    }
}

proptest! {
    #[test]
    fn ranks_bytes_and_texts_agree(a in elements(), b in elements()) {
        let (first, second) = (Rank::new(&a).expect("short"), Rank::new(&b).expect("short"));
        let expected = compare_with_zeros(&a, &b);
        prop_assert_eq!(first.cmp(&second), expected);
        prop_assert_eq!(first.to_bytes().cmp(&second.to_bytes()), expected);
        prop_assert_eq!(first == second, expected == Ordering::Equal);
        prop_assert_eq!(Rank::from_bytes(&first.to_bytes()), Ok(first));
        prop_assert_eq!(first.to_string().parse(), Ok(first));
        prop_assert_eq!(Rank::new(first.elements()), Ok(first));
    }

    #[test]
    fn any_bytes_of_the_right_number_are_a_rank(bytes in any::<[u8; Rank::BYTES]>()) {
        prop_assert_eq!(Rank::from_bytes(&bytes).map(|rank| rank.to_bytes()), Ok(bytes));
    }

    #[test]
    fn scores_print_as_they_are_read(thousandths in -Score::MOST.thousandths()..=Score::MOST.thousandths()) {
        prop_assert_eq!(score(thousandths).to_string().parse(), Ok(score(thousandths)));
    }

    #[test]
    fn the_text_of_a_floating_point_number_is_the_number(number in -1e9..1e9) {
        let (read, taken): (Score, _) = (format!("{number}").parse().expect("a number"), Score::try_from(number));
        let difference = read.thousandths() - taken.expect("small").thousandths();
        prop_assert!(difference.abs() <= 1, "{} of {}", difference, number);
    }

    #[test]
    fn a_class_moves_border_by_border(mut classes in classes(), scores in vec(-20_000i64..20_000, 1..50)) {
        let (width, margin) = (classes.width().thousandths(), classes.margin().thousandths());
        let mut twin = scores[0].div_euclid(width);
        for thousandths in scores {
            twin = step_by_step(twin, thousandths, width, margin);
            prop_assert_eq!(class(&mut classes, thousandths), twin);
        }
    }

    #[test]
    fn nothing_flaps_within_a_margin(
        mut classes in classes(),
        first in -20_000i64..20_000,
        shares in vec(-1.0..=1.0, 1..50),
    ) {
        let margin = classes.margin().thousandths() as f64;
        let settled = class(&mut classes, first);
        for share in shares {
            prop_assert_eq!(class(&mut classes, first + (margin * share) as i64), settled);
        }
    }

    #[test]
    fn within_two_margins_all_changes_have_one_direction(
        mut classes in classes(),
        lowest in -20_000i64..20_000,
        shares in vec(0.0..=1.0, 2..50),
    ) {
        let band = 2.0 * classes.margin().thousandths() as f64;
        let seen: Vec<i64> = shares.iter().map(|share| class(&mut classes, lowest + (band * share) as i64)).collect();
        let is_one_way = seen.is_sorted() || seen.iter().rev().is_sorted();
        prop_assert!(is_one_way, "{:?}", seen);
    }

    #[test]
    fn a_monotone_score_crosses_each_border_once(
        classes in classes(),
        mut scores in vec(-20_000i64..20_000, 2..50),
        falls in any::<bool>(),
    ) {
        scores.sort_unstable();
        if falls {
            scores.reverse();
        }
        let mut slow = classes.clone();
        let seen: Vec<i64> = scores.iter().map(|thousandths| class(&mut slow, *thousandths)).collect();
        let crossed: i64 = seen.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        let (first, last) = (seen[0], seen[seen.len() - 1]);
        prop_assert_eq!(crossed, (last - first).abs(), "a border was crossed again: {:?}", seen);
        let mut jumps = classes;
        class(&mut jumps, scores[0]);
        prop_assert_eq!(class(&mut jumps, scores[scores.len() - 1]), last, "it depends on the steps");
    }

    #[test]
    fn a_better_score_never_has_the_worse_class(classes in classes(), a in -20_000i64..20_000, b in -20_000i64..20_000) {
        let (mut first, mut second) = (classes.clone(), classes);
        prop_assert!(class(&mut first, a.min(b)) <= class(&mut second, a.max(b)));
    }

    #[test]
    fn patterns_fit_what_their_definition_says(pattern in "[ab*]{1,8}", label in "[ab*]{1,8}") {
        let parsed: Pattern = pattern.parse().expect("a pattern");
        prop_assert_eq!(parsed.fits(&label.parse().expect("a label")), fits(pattern.as_bytes(), label.as_bytes()));
    }

    #[test]
    fn no_command_line_panics_the_parsers(text in "\\PC{0,20}|[-+0-9.,:einf*]{0,12}") {
        let _ = (text.parse::<Scores>(), text.parse::<Classes>(), text.parse::<Rank>());
        if let Ok(patterns) = text.parse::<primacy_core::select::Patterns>() {
            prop_assert!(!patterns.as_slice().is_empty());
        }
    }

    #[test]
    fn a_hand_over_goes_to_who_was_well_and_better_for_long_enough(
        after in 0u64..40,
        looks in vec((1u64..15, vec(prop_oneof![1 => Just(None), 4 => (-3i32..2).prop_map(Some)], 3)), 1..40),
    ) {
        let mut watch = FailBackWatch::new(FailBack::After(Duration::from_secs(after)));
        // Since when each of the three has been well and better, and when the last hand-over was.
        let mut since = [None; 3];
        let mut now = Instant::ZERO;
        for (passes, elements) in looks {
            now = now + Duration::from_secs(passes);
            let ranks: Vec<Option<Rank>> =
                elements.iter().map(|element| element.map(|element| Rank::new(&[element]).expect("short"))).collect();
            let live = ranks.iter().enumerate().filter_map(|(id, rank)| Some((id, rank.as_ref()?)));
            let chosen = watch.observe(now, &Rank::default(), live);
            for (since, element) in since.iter_mut().zip(&elements) {
                let is_better = element.is_some_and(|element| element < 0);
                *since = if is_better { since.or(Some(now)) } else { None };
            }
            if let Some(chosen) = chosen {
                let well_since = since[chosen].expect("better in this look");
                prop_assert!(now.since(well_since) >= Duration::from_secs(after));
                since = [None; 3];
            }
        }
    }

    #[test]
    fn hand_overs_are_bounded_whatever_is_seen(looks in vec((1u64..4_000, 0u8..3), 1..400)) {
        let mut watch = FailBackWatch::new(FailBack::After(Duration::ZERO));
        let mut now = Instant::ZERO;
        let mut at: Vec<Instant> = Vec::new();
        for (passes, other) in looks {
            now = now + Duration::from_secs(passes);
            let rank = Rank::new(&[-i32::from(other)]).expect("short");
            at.extend(watch.observe(now, &Rank::default(), Some((other, &rank))).map(|_| now));
            if other == 2 {
                watch.lead_begins();
            }
        }
        assert_bounded(&at, 1);
    }
}

/// At most 6 hand-overs in any hour, and after n hours n + 7, for each of this many watches that do not know of another.
fn assert_bounded(at: &[Instant], watches: usize) {
    let hour = Duration::from_secs(3_600);
    for (index, start) in at.iter().enumerate() {
        let within = at[index..].iter().take_while(|later| later.since(*start) < hour).count();
        assert!(within <= 6 * watches, "{within} hand-overs in the hour from {start}");
    }
    if let (Some(first), Some(last)) = (at.first(), at.last()) {
        let hours = last.since(*first).as_secs() as usize / 3_600;
        assert!(at.len() <= (hours + 7) * watches, "{} hand-overs in {hours} hours", at.len());
    }
}

/// How long the simulated cluster runs.
const NOISY_HOURS: u64 = 6;

/// How the leaders of a simulated cluster hold back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    /// Each candidate hears of all hand-overs.
    All,
    /// Each knows only of its own.
    Own,
    /// None remembers any: what would happen without the spacing.
    None,
}

/// This many candidates, each with a score that wanders far across borders, for six hours, with one look a second. The
/// times of the hand-overs.
fn noisy_hours(candidates: usize, memory: Memory, seed: u64) -> Vec<Instant> {
    let mut random = seed;
    let mut noise = move || {
        // SplitMix64.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % 2_001) as i64 - 1_000
    };
    let label = Label::new("web").expect("a label");
    let classes: Classes = "10:5".parse().expect("classes");
    let selector = Selector::new(Names::default(), vec![classes]).expect("one score");
    let fresh = || FailBackWatch::<usize>::new(FailBack::After(FailBack::USUAL));
    let mut cluster = vec![(0i64, selector, fresh()); candidates];
    let (mut leader, mut at) = (0, Vec::new());
    for second in 0..NOISY_HOURS * 3_600 {
        let now = Instant::ZERO + Duration::from_secs(second);
        let mut ranks = Vec::with_capacity(candidates);
        for (wanders, selector, _) in &mut cluster {
            // It is drawn back to 0 within about a minute, and spreads about two classes to either side.
            *wanders = *wanders * 60 / 61 + noise() * 6;
            let scores = Scores::new(vec![score(*wanders)]).expect("one score");
            ranks.push(selector.rank(&label, &scores).expect("near 0").expect("may lead"));
        }
        let others = ranks.iter().enumerate().filter(|(id, _)| *id != leader);
        let Some(next) = cluster[leader].2.observe(now, &ranks[leader], others) else { continue };
        at.push(now);
        for (id, (.., watch)) in cluster.iter_mut().enumerate() {
            match memory {
                Memory::All if id != leader => watch.saw_hand_over(now),
                Memory::None => *watch = fresh(),
                _ => {}
            }
        }
        leader = next;
        cluster[leader].2.lead_begins();
    }
    at
}

#[test]
fn noisy_scores_do_not_play_ping_pong() {
    for (candidates, seed) in [(2, 1), (3, 2), (5, 3)] {
        let unbounded = noisy_hours(candidates, Memory::None, seed).len();
        assert!(unbounded > 60, "the scores are noisy enough for {unbounded} hand-overs");
        let at = noisy_hours(candidates, Memory::All, seed);
        assert!(at.len() > 6, "preference still works: {} hand-overs", at.len());
        println!("{candidates} candidates: {} hand-overs in {NOISY_HOURS} hours instead of {unbounded}", at.len());
        assert_bounded(&at, 1);
        assert_bounded(&noisy_hours(candidates, Memory::Own, seed), candidates);
    }
}

#[test]
fn scores_fill_a_rank_with_a_name_and_a_turn() {
    assert_eq!(SCORES_MAX + 2, Rank::ELEMENTS_MAX);
}
