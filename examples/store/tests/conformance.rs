//! The store keeps the port's promises, elects, and refuses what is damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primacy::store::conformance::{self, Harness};
use primacy::store::{BoxFuture, Store, StoreError};
use primacy::{Election, ElectionName};
use primacy_files::FilesStore;

struct Files(tempfile::TempDir);

impl Harness for Files {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(FilesStore::at(self.0.path()))
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        let path = state_of(self.0.path(), election);
        let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("reads")).expect("is JSON");
        state["record"] = serde_json::Value::Null;
        fs::write(path, state.to_string()).expect("writes");
        Box::pin(std::future::ready(true))
    }

    fn has_registers(&self) -> bool {
        false
    }
}

/// The file with the state of this election.
fn state_of(root: &Path, election: &ElectionName) -> PathBuf {
    let folders = fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry").path().join("state"));
    let name = format!("\"election\": \"{election}\"");
    let is_its = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&name));
    folders.into_iter().find(is_its).expect("somebody has led")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_conforms() {
    let files = Files(tempfile::tempdir().expect("a folder"));
    let report = conformance::run(&files).await.expect("conforms");
    assert!(report.skipped.iter().all(|check| check.starts_with("registers-")), "{report:?}");
    assert!(report.passed.len() >= 46, "{report:?}");
}

#[tokio::test]
async fn one_leads_after_another_with_a_larger_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let election = || {
        let name = ElectionName::new("nightly").expect("a name");
        Election::new(Arc::new(FilesStore::at(folder.path())), name)
    };
    let mut first = election().campaign("web-1").expect("campaigns");
    let leadership = first.elected().await.expect("leads");
    let token = leadership.token();
    let mut second = election().campaign("web-2").expect("campaigns");
    leadership.resign().await;
    first.withdraw().await;
    let leadership = second.elected().await.expect("leads");
    assert!(leadership.is_current() && leadership.token() > token);
    drop(leadership);
    second.withdraw().await;
}

#[tokio::test]
async fn a_write_that_was_cut_short_changes_nothing_and_damage_is_refused() {
    let files = Files(tempfile::tempdir().expect("a folder"));
    let name = ElectionName::new("nightly").expect("a name");
    let mut candidate = Election::new(files.open(), name.clone()).campaign("web-1").expect("campaigns");
    drop(candidate.elected().await.expect("leads"));
    candidate.withdraw().await;
    let mut admin = files.open().admin().await.expect("opens");
    let before = admin.history(&name, 10).await.expect("reads");
    assert_eq!(before.len(), 1);

    let state = state_of(files.0.path(), &name);
    fs::write(state.with_file_name("state.new"), "{\"ver").expect("writes");
    fs::write(state.with_file_name("waiting"), "{\"boo").expect("writes");
    assert_eq!(admin.history(&name, 10).await, Ok(before));

    let sound = fs::read_to_string(&state).expect("reads");
    for damaged in ["", "{\"ver", &sound.replace("\"version\": 1", "\"version\": 2")] {
        fs::write(&state, damaged).expect("writes");
        let refused = admin.history(&name, 10).await.expect_err("is refused");
        let names_it = |why: &str| why.contains(state.to_str().expect("UTF-8"));
        assert!(matches!(&refused, StoreError::Unusable(why) if names_it(why)), "{refused}");
        let mut candidate = Election::new(files.open(), name.clone()).campaign("web-2").expect("campaigns");
        candidate.elected().await.expect_err("nobody leads by a damaged file");
        assert_eq!(fs::read_to_string(&state).expect("reads"), damaged, "it is left as it is");
    }
}
