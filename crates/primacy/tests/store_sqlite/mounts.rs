//! Full and read-only file systems. They need the right to mount; without it the tests say so and check less.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use primacy::store::{Order, OrderKind, Store};

use crate::support::{Actor, applied, at, election, unusable};

/// A small file system in memory.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder)),
            other => {
                primacy_servers::skipped(&format!("no file system can be mounted here: {other:?}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.path()).status().expect("runs");
        assert!(status.success(), "{options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_named_changes_nothing_and_is_left_behind_once_there_is_room() {
    let Some(mount) = Mount::new("size=512k") else { return };
    let path = mount.path().join("p.db");
    let store = at(&path);
    let (mut a, mut record) = Actor::leading(&store, "e", 1).await;
    let filler = mount.path().join("filler");
    fill(&filler);
    // The log has room left over; then a renewal meets the end of the disk.
    let refused = loop {
        let renewal = a.renewal(&record);
        match a.step(renewal).await {
            Err(error) => break error,
            renewed => record = applied(renewed),
        }
        assert!(record.version.beat < 1_000, "the disk never fills");
    };
    let why = unusable::<()>(Err(refused), &path);
    assert!(why.contains("no space"), "{why}");
    let mut b = Actor::try_join(&store, "e", 2).await.expect("joining needs no room");
    assert_eq!(b.look().await.record.as_ref(), Some(&record), "the refused renewal was not taken");
    // Looking goes on where announcing cannot.
    assert_eq!(b.announce().await.record.as_ref(), Some(&record));
    fs::remove_file(&filler).expect("removes");
    let mut again = Actor::join(&store, "e", 1).await;
    let renewal = again.renewal(&record);
    applied(again.step(renewal).await);
}

fn fill(path: &PathBuf) {
    use std::io::Write as _;
    let mut file = fs::File::create(path).expect("creates");
    while file.write_all(&[0; 1024]).is_ok() {}
}

#[tokio::test]
async fn a_read_only_file_system_can_be_watched_and_not_taken_part_in() {
    let Some(mount) = Mount::new("size=4m") else { return };
    let path = mount.path().join("p.db");
    let store = at(&path);
    let (_a, record) = Actor::leading(&store, "e", 1).await;
    mount_read_only_view(&mount, async |view| {
        let seen = at(&view.join("p.db"));
        let why = unusable(Actor::try_join(&seen, "e", 2).await, &view.join("p.db"));
        assert!(why.contains("writable"), "{why}");
        unusable(Actor::try_join(&at(&view.join("other.db")), "e", 2).await, &view.join("other.db"));
        let mut admin = seen.admin().await.expect("an admin connection only reads");
        let snapshot = admin.snapshot(&election("e")).await.expect("reads").expect("is there");
        assert_eq!(snapshot.record, record);
        let order = Order { kind: OrderKind::Pause, token: None };
        let why = unusable(admin.order(&election("e"), order).await, &view.join("p.db"));
        assert!(why.contains("writable"), "{why}");
        let probe = admin.probe().await.expect("reads");
        assert!(probe.renewals.is_empty() && probe.findings.iter().any(|finding| finding.code == "permission"));
    })
    .await;
}

/// The same files at another place that cannot be written through.
async fn mount_read_only_view(mount: &Mount, test: impl AsyncFnOnce(&Path)) {
    let view = tempfile::tempdir().expect("a folder");
    let bind = Command::new("mount").arg("--bind").args([mount.path(), view.path()]).status().expect("runs");
    assert!(bind.success());
    let view = Mount(view);
    view.remount("bind,ro");
    test(view.path()).await;
}
