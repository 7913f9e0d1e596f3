//! Percent-encoding, as the parts of a URL have it.

/// Undoes percent-encoding. `None` if it is broken, or hides a NUL, which ends a text in what databases are sent.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// For a URL: everything but letters, digits and `-._~` as `%XX`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_what_is_broken_is_refused() {
        for text in ["", "plain-1_2.3~", "a b", "ü@host:1/d?x=y&z#%", "100%"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(encode("a/b@c"), "a%2Fb%40c");
        for broken in ["%", "%4", "%zz", "a%4", "%ff", "admin%00x"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
