//! Passwords in URLs: refused where others can read them, and never shown.

/// What is said about a password on the command line.
pub(crate) const REFUSED: &str = "a password in --store is shown to every user of this host by ps; put the URL into \
    PRIMACY_STORE, or the password into PGPASSWORD, ~/.pgpass or MYSQL_PWD";

/// What a password is called where it is a parameter.
const NAMES: [&str; 3] = ["password=", "passwd=", "pwd="];

/// Whether this URL has a password in it. One of a file has none, whatever its path looks like.
pub(crate) fn is_in(url: &str) -> bool {
    !url.starts_with("sqlite:") && without(url) != url
}

/// The text with `…` in place of every password: what stands between `:` and the last `@` of a word with `//`, which may
/// be too much where a password was not written as a URL must be, and the values of parameters called so.
pub(crate) fn without(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive([' ', '\n', '\t', '\'', '"', '`']) {
        let mut word = word.to_owned();
        hide_userinfo(&mut word);
        for name in NAMES {
            hide_parameter(&mut word, name);
        }
        shown += &word;
    }
    shown
}

fn hide_userinfo(word: &mut String) {
    let Some(begin) = word.find("//").map(|at| at + 2) else { return };
    // Peers have names and ports, and nothing that is secret.
    if word[..begin].ends_with("peers://") {
        return;
    }
    let Some(end) = word.rfind('@').filter(|end| *end > begin) else { return };
    let Some(colon) = word[begin..end].find(':').map(|at| begin + at + 1) else { return };
    if colon < end {
        word.replace_range(colon..end, "…");
    }
}

fn hide_parameter(word: &mut String, name: &str) {
    let mut from = 0;
    // The same bytes as in the word: only ASCII letters are made small.
    while let Some(at) = word.to_ascii_lowercase()[from..].find(name) {
        let begin = from + at + name.len();
        let end = word[begin..].find(['&', ' ', '\n', '\t', '\'', '"', '`']).map_or(word.len(), |at| begin + at);
        if begin < end {
            word.replace_range(begin..end, "…");
        }
        from = begin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_however_they_are_written() {
        for (with, shown) in [
            ("postgres://u:pw@h/d", "postgres://u:…@h/d"),
            ("postgresql://u:p/w?x@h:5432/d", "postgresql://u:…@h:5432/d"),
            ("mysql://:pw@h", "mysql://:…@h"),
            ("mysql://u:p@w@h", "mysql://u:…@h"),
            ("postgres://u@h/d?sslmode=disable&password=pw&x=y", "postgres://u@h/d?sslmode=disable&password=…&x=y"),
            ("mariadb://h?PASSWORD=pw", "mariadb://h?PASSWORD=…"),
            ("host=h password=pw user=u", "host=h password=… user=u"),
            ("pwd=a&passwd=b&password=é", "pwd=…&passwd=…&password=…"),
        ] {
            assert!(is_in(with), "{with}");
            assert_eq!(without(with), shown);
            assert_eq!(without(shown), shown, "twice is as good as once");
        }
        assert_eq!(without("'postgres://u:pw@h/d' is no value"), "'postgres://u:…@h/d' is no value");
    }

    #[test]
    fn what_has_none_is_left_alone() {
        for text in [
            "postgres://u@h:5432,g:5432/d?sslrootcert=/etc/ca.pem",
            "mysql://u:@h/d",
            "sqlite:/var/lib/primacy.db",
            "sqlite:/a//b:c@d/primacy.db",
            "peers://a@10.0.0.1:7400,b@10.0.0.2:7400?certs=/etc/primacy&name=web-1",
            "peers://10.0.0.1:7400,b@10.0.0.2:7400",
            "'--store=peers://a@h:1,b@h:2' is no value",
            "an é: x@y, password= nothing",
            "",
        ] {
            assert!(!is_in(text), "{text}");
        }
        assert_eq!(without("mysql://u@h/d: mail a:b@c"), "mysql://u@h/d: mail a:b@c");
    }
}
