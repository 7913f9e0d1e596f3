//! Bits that flip, files that are cut, moved, exchanged, and are of others.

use super::*;

/// A name and what is to be done to that file.
fn changed(image: &Image, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Image {
    let mut image = image.clone();
    change(image.get_mut(name).expect("it is one of them"));
    image
}

fn is_refused(error: &OpenError) -> bool {
    use OpenError::{Damaged, Foreign, Newer, SegmentMissing};
    matches!(error, Damaged { .. } | Foreign { .. } | Newer { .. } | SegmentMissing { .. })
}

#[test]
fn each_flipped_bit_is_found_or_harmless() {
    let (image, script) = closed(1, 90);
    let whole = recover(&image).expect("sound");
    assert!(script.is_whole(&whole) && segments(&image).len() > 2, "{:?}", segments(&image));
    let (mut found, mut harmless) = (0, 0);
    for name in segments(&image) {
        let mut damaged = image.clone();
        // Beyond, each byte is like every other one; and behind its end nothing of a segment is read.
        let used = end(&image[&name]);
        let beyond = if Some(&name) == segments(&image).last() { 40 } else { 0 };
        for byte in 0..(used + beyond).min(image[&name].len()) {
            for bit in 0..8 {
                damaged.get_mut(&name).expect("it is there")[byte] ^= 1 << bit;
                match recover(&damaged) {
                    Ok(recovered) => {
                        assert_eq!(
                            recovered, whole,
                            "{name}, byte {byte}, bit {bit}: something is lost, and nobody is told"
                        );
                        harmless += 1;
                    }
                    Err(error) => {
                        assert!(is_refused(&error), "{error}");
                        found += 1;
                    }
                }
                damaged.get_mut(&name).expect("it is there")[byte] ^= 1 << bit;
            }
        }
    }
    // The last mark, what is behind it, and if nothing was written to the last segment, that it follows.
    assert!(harmless <= (24 + 40 + 24) * 8, "{harmless} harmless, {found} found");
    assert!(found > 50_000, "{found}");
}

#[test]
fn without_the_last_mark_only_the_last_batch_can_be_taken_for_torn() {
    let (image, script) = closed(2, 60);
    let last = segments(&image).pop().expect("some");
    let (mark, frame) = frames(&image[&last])[0];
    assert_eq!(frame.kind, Kind::Mark, "a log that is closed ends with one");
    let image = changed(&image, &last, |bytes| bytes[mark as usize..].fill(0));
    let before = frames(&image[&last])[0].1.flushed;
    assert!(before < mark);
    for byte in segment::HEADER as usize..mark as usize {
        let damaged = changed(&image, &last, |bytes| bytes[byte] ^= 4);
        match recover(&damaged) {
            Ok(_) => assert!(byte as u32 >= before, "byte {byte} had been flushed before {before}"),
            Err(error) => assert!(is_refused(&error), "{error}"),
        }
    }
    assert!(script.is_whole(&recover(&image).expect("the mark alone says nothing new")));
}

#[test]
fn a_log_that_is_torn_at_any_byte_has_all_before_it() {
    let (image, script) = closed(3, 60);
    let mut history = script;
    let last = segments(&image).pop().expect("some");
    history.acknowledge_nothing();
    let first = frames(&image[&last]).last().expect("its first record").1.end as usize;
    for cut in 0..image[&last].len() {
        for is_zeros in [false, true] {
            let torn =
                changed(&image, &last, |bytes| if is_zeros { bytes[cut..].fill(0) } else { bytes.truncate(cut) });
            match recover(&torn) {
                Ok(found) => {
                    assert_eq!(torn[&last].get(..first), image[&last].get(..first), "{cut}");
                    history.check(&found).expect("what was there before the cut");
                }
                Err(error) => assert!(cut < first && is_refused(&error), "{cut}: {error}"),
            }
        }
    }
}

#[test]
fn a_segment_that_others_follow_is_whole_or_refused() {
    let (image, script) = closed(4, 160);
    let names = segments(&image);
    assert!(names.len() > 2);
    // Of the last but one the end is made again, if nothing was written behind it yet.
    for name in &names[..names.len() - 2] {
        let end = end(&image[name]);
        let used = 1 + image[name][..end].iter().rposition(|byte| *byte != 0).expect("a header at least");
        for cut in 0..used {
            let torn = changed(&image, name, |bytes| bytes[cut..].fill(0));
            let error = recover(&torn).expect_err("something is missing");
            assert!(is_refused(&error), "{error}");
        }
        let spare = changed(&image, name, |bytes| bytes[end..].fill(0x55));
        assert!(script.is_whole(&recover(&spare).expect("nothing is there")));
    }
}

#[test]
fn the_error_names_file_and_position_and_says_what_to_do() {
    let (image, _) = closed(5, 120);
    let name = &segments(&image)[1];
    let (at, _) = frames(&image[name])[3];
    let damaged = changed(&image, name, |bytes| bytes[at as usize + 8] ^= 1);
    let error = recover(&damaged).expect_err("damaged");
    assert!(matches!(&error, OpenError::Damaged { position, .. } if *position == at), "{error}");
    for part in [name.as_str(), &at.to_string(), "move the folder away", "made anew from the others"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let disk = MemoryDisk::of(&damaged);
    assert!(open(&disk).is_err());
    assert_eq!(disk.image(), damaged, "it is left as it is");
}

#[test]
fn each_missing_segment_is_told_unless_nothing_in_it_is_needed() {
    let (image, script) = closed(6, 160);
    let names = segments(&image);
    assert!(names.len() > 3);
    for (number, name) in names.iter().enumerate() {
        let mut without = image.clone();
        without.remove(name);
        match recover(&without) {
            Ok(found) => assert!(number == 0 && script.is_whole(&found), "{name}"),
            Err(error) => assert!(matches!(error, OpenError::SegmentMissing { .. }), "{error}"),
        }
    }
}

#[test]
fn segments_that_are_renamed_exchanged_old_or_of_others_are_refused() {
    let (image, _) = closed(7, 160);
    let names = segments(&image);
    let [a, b] = [&names[1], &names[2]];
    let mut exchanged = image.clone();
    exchanged.insert(a.clone(), image[b].clone());
    exchanged.insert(b.clone(), image[a].clone());
    let mut doubled = image.clone();
    doubled.insert(b.clone(), image[a].clone());
    let mut renamed = image.clone();
    let moved = renamed.remove(&names[0]).expect("it is there");
    renamed.insert("first.wal".into(), moved.clone());
    let mut beyond = image.clone();
    beyond.insert(segment::name(1 << 40), moved);
    // The same node, the same names, another life.
    let (other, _) = closed(8, 160);
    let mut older = image.clone();
    older.insert(a.clone(), other[a].clone());
    for wrong in [exchanged, doubled, renamed, beyond, older] {
        let error = recover(&wrong).expect_err("it is not what was written");
        assert!(is_refused(&error), "{error}");
    }
    let disk = MemoryDisk::of(&image);
    let stranger = Wal::open_on::<Vec<u8>>(Arc::new(disk.clone()), Settings::new(8)).expect_err("another node's");
    assert!(matches!(&stranger, OpenError::Foreign { why, .. } if why.contains("node")), "{stranger}");
    assert_eq!(disk.image(), image);
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let (image, _) = closed(9, 10);
    let name = &segments(&image)[0];
    let mut newer = image[name].clone();
    newer[12] = 2;
    newer[8..12].fill(0);
    let sum = crc32c::crc32c(&newer[..64]);
    newer[8..12].copy_from_slice(&sum.to_le_bytes());
    let error = recover(&Image::from([(name.clone(), newer)])).expect_err("unknown");
    assert!(matches!(error, OpenError::Newer { format: 2, .. }), "{error}");
}

#[test]
fn what_is_left_of_a_torn_tail_is_never_read_again() {
    let (image, script) = closed(10, 6);
    let last = segments(&image).pop().expect("some");
    let tag = Header::read(&image[&last]).expect("sound").tag();
    let (mark, _) = frames(&image[&last])[0];
    // A batch of which the first record is lost, and others survive: at each place where a new record may end, in one of the cases.
    for (shift, steps) in (0..4).flat_map(|shift| (1..4).map(move |steps| (shift, steps))) {
        let mut torn = image.clone();
        let bytes = torn.get_mut(&last).expect("it is there");
        bytes[mark as usize + 4] ^= 1;
        for place in (mark + 24 + 8 * shift..4096 - 32).step_by(32) {
            let mut stale = Vec::new();
            segment::put_frame(&mut stale, (tag, place, mark), GroupId(1), Kind::Promise, &[1]);
            bytes[place as usize..place as usize + stale.len()].copy_from_slice(&stale);
        }
        let disk = MemoryDisk::of(&torn);
        let opened = open(&disk).expect("a torn tail is cut off");
        assert_eq!(opened.report.tail.map(|tail| tail.position), Some(mark));
        assert!(script.is_whole(&opened.replicas));
        let mut further = script.clone();
        further.resume(&opened.replicas);
        assert!(further.drive(&opened.wal, steps));
        drop(opened);
        let image = disk.image();
        assert_eq!(segments(&image).pop(), Some(last.clone()), "there is room in it");
        assert!(further.is_whole(&recover(&image).expect("sound")), "{shift}, {steps}");
    }
}
