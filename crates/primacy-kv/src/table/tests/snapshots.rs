//! Snapshots show one moment whatever is written meanwhile, and what is no snapshot is refused.

use alloc::vec::Vec;

use proptest::collection::vec as many;
use proptest::prelude::*;

use crate::entry::{Batch, GroupTime};
use crate::table::snapshot::CRC;
use crate::table::{Install, SnapshotError, Table};
use crate::testing::{Client, apply, batch, table};
use crate::wire::Malformed;

/// A whole snapshot of a table at rest.
pub(super) fn chunks(table: &mut Table, size: usize) -> Vec<Vec<u8>> {
    table.begin_snapshot();
    core::iter::from_fn(|| table.snapshot_chunk(size)).collect()
}

fn installed(chunks: &[Vec<u8>]) -> Result<Option<Table>, SnapshotError> {
    let mut install = Install::new();
    let mut table = None;
    for chunk in chunks {
        assert!(table.is_none(), "nothing comes behind the last chunk");
        table = install.take(chunk)?;
    }
    Ok(table)
}

/// The same chunk with the checksum that it should have.
fn signed(chunk: &[u8]) -> Vec<u8> {
    let checksum = CRC.checksum(&chunk[4..]);
    [&checksum.to_le_bytes(), &chunk[4..]].concat()
}

fn some_table() -> Table {
    let mut client = Client::new();
    for number in 0..20 {
        client.ask(&alloc::format!("set key{number} value{number} px {}", number + 1));
    }
    client.table
}

#[test]
fn an_empty_table_has_a_snapshot_too() {
    let chunks = chunks(&mut table(), 1_000);
    assert_eq!(chunks.len(), 1);
    let mut table = installed(&chunks).unwrap().unwrap();
    assert!(table.is_empty());
    assert_eq!(self::chunks(&mut table, 1_000), chunks);
}

#[test]
fn chunks_are_small_and_each_goes_on() {
    let mut table = some_table();
    for size in [0, 1, 50, 100] {
        let chunks = chunks(&mut table, size);
        assert!(chunks.iter().all(|chunk| chunk.len() < size + 70), "{size}");
        assert!(installed(&chunks).unwrap().is_some());
    }
    assert_eq!(table.snapshot_chunk(100), None);
}

#[test]
fn what_is_kept_aside_is_counted_and_given_back() {
    let mut client = Client::new();
    for number in 0..20 {
        client.ask(&alloc::format!("set key{number} value"));
    }
    let before = client.table.bytes();
    client.table.begin_snapshot();
    let with_head = client.table.bytes();
    client.ask("flushall");
    assert!(client.table.bytes() > with_head, "{before} bytes are still there");
    client.ask("set key1 other");
    let chunks: Vec<_> = core::iter::from_fn(|| client.table.snapshot_chunk(50)).collect();
    assert_eq!(installed(&chunks).unwrap().unwrap().len(), 20);
    client.ask("flushall");
    assert_eq!(client.table.bytes(), 0);
    client.table.begin_snapshot();
    client.table.cancel_snapshot();
    assert_eq!((client.table.bytes(), client.table.snapshot_chunk(50)), (0, None));
}

#[test]
fn each_flipped_bit_is_found() {
    let chunks = chunks(&mut some_table(), 10_000);
    assert_eq!(chunks.len(), 1);
    for at in 0..chunks[0].len() * 8 {
        let mut damaged = chunks[0].clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert_eq!(Install::new().take(&damaged).err(), Some(SnapshotError::Damaged));
    }
}

#[test]
fn chunks_come_once_and_in_order() {
    let mut table = some_table();
    let (first, other) = (chunks(&mut table, 50), {
        apply(&mut table, Batch::default());
        chunks(&mut table, 50)
    });
    let mut install = Install::new();
    assert!(matches!(install.take(&first[1]), Err(SnapshotError::NotNext { number: 1, .. })));
    assert!(install.take(&first[0]).unwrap().is_none());
    assert!(matches!(install.take(&first[0]), Err(SnapshotError::NotNext { number: 0, .. })));
    assert!(matches!(install.take(&other[1]), Err(SnapshotError::NotNext { index: 21, .. })));
    // None of that has done harm.
    let last = first[1..].iter().map(|chunk| install.take(chunk).unwrap()).last().unwrap();
    assert_eq!(last.map(|table| table.len()), Some(20));
}

#[test]
fn a_snapshot_that_lacks_keys_is_refused() {
    let mut client = Client::new();
    client.ask("set a 1");
    let whole = chunks(&mut client.table, 1);
    let mut last = whole.last().unwrap().clone();
    *last.last_mut().unwrap() += 1;
    let mut install = Install::new();
    for chunk in &whole[..whole.len() - 1] {
        install.take(chunk).unwrap();
    }
    let failure = SnapshotError::Malformed(Malformed("keys are missing"));
    assert_eq!(install.take(&signed(&last)).err(), Some(failure));
    assert_eq!(install.take(&whole[0]).err(), Some(failure), "it has failed for good");
}

proptest! {
    #[test]
    fn a_snapshot_shows_the_moment_of_its_beginning(
        before in many(batch(), 0..20),
        between in many(batch(), 0..20),
        size in 0..300_usize,
    ) {
        let (mut written, mut at_rest) = (table(), table());
        for batch in before {
            apply(&mut at_rest, batch.clone());
            apply(&mut written, batch);
        }
        let expected = chunks(&mut at_rest, size);
        let mut found = Vec::new();
        prop_assert_eq!(written.begin_snapshot(), at_rest.applied());
        let mut between = between.into_iter();
        while let Some(chunk) = written.snapshot_chunk(size) {
            found.push(chunk);
            if let Some(batch) = between.next() {
                apply(&mut written, batch);
            }
        }
        prop_assert_eq!(&found, &expected);
        let mut installed = installed(&found).unwrap().unwrap();
        prop_assert_eq!(installed.applied(), at_rest.applied());
        prop_assert_eq!(installed.bytes(), at_rest.bytes());
        prop_assert_eq!(installed.next_expiry(), at_rest.next_expiry());
        prop_assert_eq!(chunks(&mut installed, size), expected);
        // What comes next does the same to both.
        for batch in between {
            prop_assert_eq!(apply(&mut installed, batch.clone()), apply(&mut at_rest, batch));
        }
    }

    #[test]
    fn any_records_are_read_or_refused(
        batches in many(batch(), 0..5),
        at: prop::sample::Index,
        bytes in many(any::<u8>(), 0..5),
    ) {
        let mut table = table();
        for batch in batches {
            apply(&mut table, batch);
        }
        let mut chunk = chunks(&mut table, 100_000).pop().unwrap();
        let at = 4 + at.index(chunk.len() - 4);
        let end = (at + bytes.len()).min(chunk.len());
        chunk.splice(at..end, bytes);
        if let Ok(Some(mut table)) = Install::new().take(&signed(&chunk)) {
            chunks(&mut table, 100);
            table.expired(GroupTime(300), 100);
        }
    }
}
