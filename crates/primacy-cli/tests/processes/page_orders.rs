//! Orders from the page in a real browser: what is said before, who may, and that nothing changes when they are refused.

use fantoccini::key::Key;
use serde_json::Value;

use crate::browser::Browser;
use crate::http_orders::SECRET;
use crate::telling::Telling;
use crate::world::World;

/// Nothing but an order ends a leadership.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

impl Browser {
    fn dialog_is_open(&self) -> bool {
        self.value("document.querySelector('#order').open") == true
    }

    /// Goes by the keyboard to the element of which this is so.
    fn tab_to(&self, what: &str) {
        for _ in 0..20 {
            self.press(&[Key::Tab]);
            if self.value(&format!("document.activeElement.matches({what:?})")) == true {
                return;
            }
        }
        panic!("the keyboard does not come to {what}: {}", self.value("document.activeElement.outerHTML"));
    }

    fn presses_and_confirms(&self, button: &str, token: Option<&str>) {
        self.until(&format!("document.querySelector('{button}').checkVisibility()"));
        self.click(button);
        self.until("document.querySelector('#order').open");
        if let Some(token) = token {
            self.type_into("#order-token", token);
        }
        self.click("#order-give");
    }
}

/// What the store says of these.
fn seen(world: &World) -> [Value; 3] {
    let output = world.primacy(["status", "--json"]).output().expect("primacy starts");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    ["token", "paused", "order"].map(|field| status[field].clone())
}

/// Two candidates, of which the first leads and takes orders.
fn two(world: &mut World) -> (Telling, Telling, u64) {
    let first = Telling::taking_orders_with(world, "web-1", LONG);
    let led = world.expect_start_after(0);
    let second = Telling::start_with(world, "web-2", LONG);
    world.await_candidates(1);
    (first, second, led.token)
}

#[test]
fn the_keyboard_alone_promotes_a_candidate_after_reading_what_will_happen() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let (first, _second, token) = two(&mut world);
    browser.open(first.address, "");
    browser.until("document.querySelector('#candidates button').checkVisibility()");
    assert_eq!(browser.value("document.querySelector('#candidates button').ariaLabel"), "Promote web-2…");
    browser.tab_to("#candidates button");
    browser.press(&[Key::Enter]);
    browser.until("document.querySelector('#order').open");
    assert_eq!(
        browser.says("#order-says"),
        "web-1 leads with token 1. It is told to stop its work, and when that has stopped, web-2 leads. Clients see no leader \
         until then."
    );
    // Who thinks better of it is where they were.
    browser.press(&[Key::Escape]);
    browser.until("!document.querySelector('#order').open");
    assert_eq!(browser.value("document.activeElement.matches('#candidates button')"), true);
    browser.press(&[Key::Enter]);
    browser.until("document.querySelector('#order').open && document.activeElement.id === 'order-token'");
    browser.write(SECRET);
    assert_eq!(seen(&world), [token.into(), false.into(), Value::Null], "nothing was ordered yet");
    browser.press(&[Key::Enter]);
    browser.until_says("#outcome", "web-2 is to lead.");
    let next = world.expect_start_after(token);
    assert_eq!(next.name, "web-2");
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));
    browser.until_says("#terms", "an operator asked for another leader");
    assert!(!browser.dialog_is_open());
    world.assert_never_two();
}

#[test]
fn a_wrong_token_changes_nothing_and_is_asked_for_again() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let (first, _second, _) = two(&mut world);
    let before = seen(&world);
    browser.open(first.address, "");
    for (typed, says) in [
        ("short", "16 to 512"),
        ("0123456789abcdefX", "this is not the token"),
        ("wrong token with spaces", "16 to 512"),
    ] {
        browser.presses_and_confirms("#depose", Some(typed));
        browser.until_says("#order-refused", says);
        browser.until("document.activeElement.id === 'order-token'");
        assert!(browser.dialog_is_open());
        assert_eq!(seen(&world), before, "{typed}");
        browser.click("#order-cancel");
        browser.until("!document.querySelector('#order').open");
    }
    // The browser tells a dialog of its end only after that.
    browser.until("document.querySelector('#order-token').value === ''");
}

#[test]
fn an_order_about_a_leadership_that_is_over_is_refused() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let (first, _second, token) = two(&mut world);
    browser.open(first.address, "");
    browser.until("document.querySelector('#depose').checkVisibility()");
    browser.click("#depose");
    browser.until_says("#order-says", "web-1 leads with token 1.");
    assert!(world.primacy(["promote", "web-2"]).status().expect("primacy starts").success());
    let next = world.expect_start_after(token);
    world.await_candidates(1);
    browser.until("document.querySelector('#who').textContent.startsWith('web-2 leads')");
    let before = seen(&world);
    browser.type_into("#order-token", SECRET);
    browser.click("#order-give");
    browser.until_says("#order-refused", "nothing was changed");
    assert_eq!(browser.says("#order-give"), "", "the same again would be as late");
    assert_eq!(seen(&world), before);
    assert_eq!(before[0], next.token);
    world.assert_never_two();
}

#[test]
fn an_operator_pauses_resumes_and_deposes_and_the_token_is_kept_in_the_tab_alone() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let (first, _second, token) = two(&mut world);
    browser.open(first.address, "");
    browser.presses_and_confirms("#pause", Some(SECRET));
    browser.until_says("#outcome", "The election is paused.");
    browser.until_says("#paused", "paused");
    assert_eq!(seen(&world)[1], true);
    // It is not asked for twice.
    browser.until("document.querySelector('#resume').checkVisibility()");
    browser.click("#resume");
    browser.until_says("#order-kept", "is used");
    assert_eq!(browser.says("#order-ask"), "");
    browser.click("#order-give");
    browser.until_says("#outcome", "The election goes on.");
    browser.until("document.querySelector('#paused').hidden");
    assert_eq!(seen(&world)[1], false);
    browser.presses_and_confirms("#depose", None);
    browser.until_says("#outcome", "Another candidate is to lead.");
    let next = world.expect_start_after(token);
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));

    let kept = browser.value(
        "[localStorage.length, sessionStorage.length, document.cookie, document.documentElement.outerHTML, location.href].join()",
    );
    assert!(kept.as_str().is_some_and(|kept| kept.starts_with("0,0,,") && !kept.contains(SECRET)), "{kept}");
    browser.click("#pause");
    browser.until_says("#order-kept", "is used");
    browser.click("#order-forget");
    browser.until("document.activeElement.id === 'order-token'");
    browser.reload();
    browser.until("document.querySelector('#pause').checkVisibility()");
    browser.click("#pause");
    browser.until("document.querySelector('#order-token').checkVisibility()");
    world.assert_never_two();
}
