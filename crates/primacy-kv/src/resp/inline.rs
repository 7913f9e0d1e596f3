//! Requests that a person types: words on a line, with quotes.

use alloc::vec::Vec;
use core::ops::Range;

/// A quote that is not closed, or that is followed by something other than a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// The words of a line, one behind the other, and where each of them is.
pub(super) fn split(line: &[u8], words: &mut Vec<u8>, ranges: &mut Vec<Range<usize>>) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_space(*first)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let from = words.len();
        rest = word(rest, words)?;
        ranges.push(from..words.len());
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Reads one word, and returns what is behind it.
fn word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    while let [first, after @ ..] = rest {
        rest = match first {
            b'"' => return closed(double_quoted(after, words)?),
            b'\'' => return closed(single_quoted(after, words)?),
            space if is_space(*space) => return Ok(rest),
            byte => {
                words.push(*byte);
                after
            }
        };
    }
    Ok(rest)
}

/// A quote ends its word.
fn closed(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    if rest.first().is_none_or(|next| is_space(*next)) { Ok(rest) } else { Err(Unbalanced) }
}

fn double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(Unbalanced),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescaped(*escaped), after),
            [byte, after @ ..] => (*byte, after),
        };
        words.push(byte);
        rest = after;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(Unbalanced),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        words.push(byte);
        rest = after;
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut words, mut ranges) = (Vec::new(), Vec::new());
        split(line, &mut words, &mut ranges)?;
        Ok(ranges.into_iter().map(|range| words[range].to_vec()).collect())
    }

    #[test]
    fn words_are_split_as_in_redis() {
        let split = |line| words(line).unwrap();
        assert_eq!(split(b"  set\tkey  value \r"), [&b"set"[..], b"key", b"value"]);
        assert_eq!(split(b"set \"a b\" 'c d'"), [&b"set"[..], b"a b", b"c d"]);
        assert_eq!(split(br#""\x41\n\"\z" '\'\n'"#), [&b"A\n\"z"[..], b"'\\n"]);
        assert_eq!(split(br#"a"b c""#), [&b"ab c"[..]]);
        assert_eq!(split(b"\"\""), [&b""[..]]);
        assert!(split(b" \t ").is_empty());
    }

    #[test]
    fn quotes_that_are_not_closed_are_refused() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"\"a\\", b"\"a\\\""] {
            assert_eq!(words(line), Err(Unbalanced));
        }
    }
}
