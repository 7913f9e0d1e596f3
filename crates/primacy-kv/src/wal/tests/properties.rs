//! Any history, with any batches, restarts and losses of power.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_life_goes_on_from_what_was_acknowledged(
        seed in 0_u64..1 << 40,
        lives in proptest::collection::vec((1_usize..60, proptest::option::of(0_usize..120)), 1..6),
    ) {
        let (mut disk, mut script) = (MemoryDisk::default(), Script::new(seed));
        for (steps, loss) in lives {
            if let Some(operation) = loss {
                disk.fail_at(disk.operations() + operation, Fault::PowerLoss);
            }
            if let Ok(opened) = open(&disk) {
                prop_assert_eq!(script.check(&opened.replicas), Ok(()));
                script.resume(&opened.replicas);
                let is_whole = script.drive(&opened.wal, steps);
                prop_assert!(is_whole || loss.is_some());
            }
            // Without a loss of power all that a process has written is there.
            let image = if loss.is_some() { disk.survivors(&mut Random::new(seed)) } else { disk.image() };
            disk = MemoryDisk::of(&image);
        }
        let opened = open(&disk).expect("what is left is a torn tail at most");
        prop_assert_eq!(script.check(&opened.replicas), Ok(()));
    }

    #[test]
    fn bytes_of_something_else_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..4096) {
        let (image, mut script) = closed(50, 30);
        let name = segments(&image).pop().expect("some");
        let mut wrong = image.clone();
        let target = wrong.get_mut(&name).expect("it is there");
        let mark = end(target) - segment::FRAME as usize;
        for (byte, new) in target.iter_mut().skip(at).zip(&bytes) {
            *byte = *new;
        }
        if at < mark && at + bytes.len() > mark {
            // What says that the last batch had been on the disk is gone with it.
            script.acknowledge_nothing();
        }
        if let Ok(found) = recover(&wrong) {
            prop_assert_eq!(script.check(&found), Ok(()));
        }
        prop_assert!(recover(&Image::from([(name, bytes)])).is_err());
    }

    #[test]
    fn a_frame_with_any_body_is_well_formed_or_refused(kind in 2_u8..=6, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let kinds = [Kind::Begin, Kind::Promise, Kind::Append, Kind::Install, Kind::Compact];
        let kind = kinds[usize::from(kind) - 2];
        let _: Option<group::Read<Vec<u8>>> = record::read(kind, &bytes);
        let _: Option<_> = record::read_heads(&bytes);
    }
}
