//! Patterns of `KEYS` and `SCAN … MATCH`.

/// Whether `text` matches a pattern with `*`, `?`, `[a-z]`, `[^a]` and `\`, as in Redis.
///
/// The time is bounded by the product of the two lengths: where a part fails, only the last `*` takes one byte more. An
/// earlier `*` need not, since all that it could take in addition, the later one can.
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut retry = None;
    while seen < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, seen));
        } else if let Some(next) = one_matches(pattern, at, text[seen]) {
            (at, seen) = (next, seen + 1);
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            (at, seen) = (after_star, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// If the element of the pattern at `at` matches one byte, where the next element begins.
fn one_matches(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class_matches(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// A class of bytes, from behind its `[` on. The end of the pattern closes it too.
fn class_matches(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, matches) in [
            ("*", "", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("a\\", "a\\", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("[\\]]", "]", true),
            ("[]", "a", false),
            ("[^]", "a", true),
            ("a*b*c", "axxbxxbxxc", true),
            ("a*b*c", "axxbxxbxx", false),
            ("", "", true),
            ("", "a", false),
            ("a?", "a", false),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), text.as_bytes()), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_the_product_of_the_lengths() {
        let pattern = b"*a".repeat(500);
        let mut text = b"a".repeat(20_000);
        text.push(b'b');
        assert!(!glob_matches(&pattern, &text));
    }

    /// The definition, which takes exponential time.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            ([_, ..], [byte, rest @ ..]) => {
                one_matches(pattern, 0, *byte).is_some_and(|next| by_definition(&pattern[next..], rest))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn going_back_to_the_last_star_is_enough(
            pattern in proptest::collection::vec(prop::sample::select(&b"ab*?[]^-\\"[..]), 0..10),
            text in proptest::collection::vec(prop::sample::select(&b"ab"[..]), 0..10),
        ) {
            prop_assert_eq!(glob_matches(&pattern, &text), by_definition(&pattern, &text));
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern: Vec<u8>, text: Vec<u8>) {
            glob_matches(&pattern, &text);
        }
    }
}
