//! Numbers and byte strings in the formats of log entries and snapshots, written and read back.

use alloc::vec::Vec;

/// Bytes that are not what they should be. The text says what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Appends a number: seven bits in each byte, the lowest first, the highest bit set in all but the last.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends a number that may be negative: small ones of either sign are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Appends a length and as many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is left of bytes that are read back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses what has more bytes than it should.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed("bytes are left over")) }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed("it ends too early"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// A byte that is 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    /// A number in its shortest form.
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || shift == 0;
                return if is_shortest { Ok(number) } else { Err(Malformed("a number is longer than need be")) };
            }
        }
        Err(Malformed("a number is too large"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A length and as many bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= max);
        self.take(length.ok_or(Malformed("a byte string is too long"))?)
    }

    /// How many elements follow. Each takes at least one byte, so that memory may be set aside for them.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.number()?).ok();
        count.filter(|count| *count <= self.rest.len()).ok_or(Malformed("more elements than bytes"))
    }

    /// A count and as many elements. Memory is taken as they come.
    pub(crate) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        (0..self.count()?).map(|_| element(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_shortest_form_of_a_number_is_read() {
        assert_eq!(Reader::new(&[0x80, 0x00]).number(), Err(Malformed("a number is longer than need be")));
        assert_eq!(Reader::new(&[0xff; 10]).number(), Err(Malformed("a number is too large")));
        assert_eq!(Reader::new(&[0x80]).number(), Err(Malformed("it ends too early")));
    }

    #[test]
    fn a_named_length_takes_no_memory() {
        let mut named = Vec::new();
        put_number(&mut named, u64::MAX);
        assert!(Reader::new(&named).bytes(usize::MAX).is_err());
        assert!(Reader::new(&named).list(Reader::byte).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(number: u64, signed: i64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number(), Ok(number));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.bytes(bytes.len()), Ok(&bytes[..]));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }
}
