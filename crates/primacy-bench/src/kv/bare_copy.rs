//! The least that a write on a majority's disks takes on this machine: a leader and two followers that copy a value and flush it, and do
//! nothing else. Each is one thread that waits for its own disk.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What a follower answers, and the leader.
type Answer = [u8; 5];

/// How long one client waits for each of its writes, for that time.
///
/// # Errors
/// If the system refuses a file or a connection.
pub(super) fn measure(folder: &Path, value: &[u8], length: Duration) -> Result<Vec<Duration>> {
    let [mut client, at_leader] = connection()?;
    let links = [connection()?, connection()?];
    let [leader, first, second] = ["leader", "first", "second"].map(|name| Disk::new(folder, name, value.len()));
    let (mut leader, mut first, mut second) = (leader?, first?, second?);
    let [[to_first, mut at_first], [to_second, mut at_second]] = links;
    thread::scope(|scope| {
        let bytes = value.len();
        let threads = [
            scope.spawn(move || lead(at_leader, [to_first, to_second], &mut leader, bytes)),
            scope.spawn(move || follow(&mut at_first, &mut first, bytes)),
            scope.spawn(move || follow(&mut at_second, &mut second, bytes)),
        ];
        let began = Instant::now();
        let mut took = Vec::new();
        while began.elapsed() < length {
            let sent = Instant::now();
            client.write_all(value)?;
            client.read_exact(&mut Answer::default())?;
            took.push(sent.elapsed());
        }
        drop(client);
        for thread in threads {
            thread.join().ok().context("a thread that copies has panicked")??;
        }
        Ok(took)
    })
}

/// Both ends.
fn connection() -> Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ends = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
    ends.iter().try_for_each(|end| end.set_nodelay(true))?;
    Ok(ends)
}

/// A file that has its room already, to which one value after the other is written.
pub(super) struct Disk {
    file: File,
    next: u64,
    end: u64,
}

impl Disk {
    pub(super) fn new(folder: &Path, name: &str, bytes: usize) -> Result<Self> {
        const VALUES: usize = 20_000;
        let file = File::create(folder.join(name))?;
        file.write_all_at(&vec![1; bytes * VALUES], 0)?;
        file.sync_all()?;
        Ok(Self { file, next: 0, end: (bytes * VALUES) as u64 })
    }

    /// Writes and flushes it.
    pub(super) fn keep(&mut self, value: &[u8]) -> Result<()> {
        if self.next == self.end {
            self.next = 0;
        }
        self.file.write_all_at(value, self.next)?;
        self.next += value.len() as u64;
        Ok(self.file.sync_data()?)
    }
}

/// Takes the next value. `false`: there will be none.
fn take(from: &mut TcpStream, value: &mut [u8]) -> Result<bool> {
    match from.read_exact(value) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn follow(leader: &mut TcpStream, disk: &mut Disk, bytes: usize) -> Result<()> {
    let mut value = vec![0; bytes];
    while take(leader, &mut value)? {
        disk.keep(&value)?;
        leader.write_all(&Answer::default())?;
    }
    Ok(())
}

fn lead(mut client: TcpStream, mut followers: [TcpStream; 2], disk: &mut Disk, bytes: usize) -> Result<()> {
    let mut value = vec![0; bytes];
    // Of each follower: how many values it has not answered.
    let mut unanswered = [0; 2];
    loop {
        // A slower follower's answers are taken as they come.
        while !hear(&mut followers, &mut unanswered, Some(&client))? {}
        if !take(&mut client, &mut value)? {
            return Ok(());
        }
        for (follower, unanswered) in followers.iter_mut().zip(&mut unanswered) {
            follower.write_all(&value)?;
            *unanswered += 1;
        }
        disk.keep(&value)?;
        while !unanswered.contains(&0) {
            hear(&mut followers, &mut unanswered, None)?;
        }
        client.write_all(&Answer::default())?;
    }
}

/// Waits for followers' answers, or for the client. Whether the client has sent something.
fn hear(followers: &mut [TcpStream; 2], unanswered: &mut [u32; 2], client: Option<&TcpStream>) -> Result<bool> {
    let ready = {
        let awaited = followers.iter().chain(client).map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN));
        let mut awaited: Vec<PollFd<'_>> = awaited.collect();
        poll(&mut awaited, PollTimeout::NONE)?;
        awaited.iter().map(|stream| stream.any().unwrap_or(true)).collect::<Vec<bool>>()
    };
    for ((follower, unanswered), _) in followers.iter_mut().zip(unanswered).zip(&ready).filter(|(_, ready)| **ready) {
        follower.read_exact(&mut Answer::default())?;
        *unanswered -= 1;
    }
    Ok(ready.get(followers.len()).copied().unwrap_or(false))
}
