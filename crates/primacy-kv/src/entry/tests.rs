//! What is written is read back, and hostile bytes are refused.

use proptest::prelude::*;

use super::*;
use crate::testing;

fn encoded(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    batch.encode(&mut bytes);
    bytes
}

#[test]
fn a_small_write_takes_few_bytes() {
    let operation = Operation::Get { key: b"key"[..].into() };
    let batch = testing::alone(GroupTime(5), Change::Operation(operation));
    assert_eq!(encoded(&batch), [VERSION, 5, 0xd0, 0x0f, 0, 1, 0, 0, 12, 3, b'k', b'e', b'y']);
}

#[test]
fn another_version_is_refused() {
    assert_eq!(Batch::decode(&[VERSION + 1, 0, 0, 0, 0]), Err(Malformed("a batch of another version")));
    assert_eq!(Batch::decode(&[VERSION, 0, 0, 0, 0]), Ok(Batch::default()));
}

#[test]
fn a_request_names_an_origin_that_is_there() {
    let bytes = [VERSION, 0, 0, 0, 1, 1, 0, 1, 0, 11];
    assert_eq!(Batch::decode(&bytes), Err(Malformed("an unknown origin")));
}

proptest! {
    #[test]
    fn a_batch_is_read_back(batch in testing::batch()) {
        prop_assert_eq!(Batch::decode(&encoded(&batch)), Ok(batch));
    }

    #[test]
    fn a_batch_has_one_form(batch in testing::batch(), at: prop::sample::Index, bit in 0..8_u8) {
        let mut bytes = encoded(&batch);
        *at.get_mut(&mut bytes) ^= 1 << bit;
        if let Ok(read) = Batch::decode(&bytes) {
            prop_assert_eq!(encoded(&read), bytes);
        }
    }

    #[test]
    fn a_part_of_a_batch_is_refused(batch in testing::batch(), at: prop::sample::Index) {
        let bytes = encoded(&batch);
        prop_assert!(Batch::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>) {
        let _ = Batch::decode(&bytes);
        bytes.insert(0, VERSION);
        let _ = Batch::decode(&bytes);
    }
}
