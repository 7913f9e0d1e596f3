//! The examples that end each command's `--help`, and its `--help-all` where that is longer.

/// What fits on one screen.
pub(crate) const PRIMACY_SHORT: &str = "\
Examples:
  primacy run -- ./scheduler          run ./scheduler here if nobody else does, else wait";

pub(crate) const PRIMACY: &str = "\
Examples:
  primacy run -- ./scheduler          run ./scheduler here if nobody else does, else wait
  primacy status --explain            who leads, and why
  primacy promote web-2               hand over to web-2

Exit codes of all commands: 2 wrong usage, 69 the store could not be reached or read within --wait, \
74 the output could not be written. Others are documented with each command.
Durations are written 250ms, 10s, 2m, 1h or 1m 30s.";

/// Either a program, or what is run in its place.
pub(crate) const RUN_USAGE: &str = "\
primacy run [OPTIONS] -- <CMD>...
       primacy run [OPTIONS] --on-elected <CMD> --on-lost <CMD>";

/// What fits on one screen.
pub(crate) const RUN_SHORT: &str = "\
Examples:
  primacy run -- ./scheduler --port 8080
  primacy run --lease 3s --grace 1s --once -- ./worker
  primacy run --try --quiet -- ./report                  not at all where another leads
  primacy run --prefer db-1,'db-*' -- ./writer
  primacy run --on-elected ./promote --on-lost ./demote  for programs that stay warm

CMD gets PRIMACY_TOKEN in its environment. On loss it gets SIGTERM, and SIGKILL after the grace.
All options, examples and exit codes: --help-all.";

pub(crate) const RUN: &str = "\
Examples:
  primacy run -- ./scheduler --port 8080
  primacy run --election billing --name web-1 --data http://10.0.0.5:8080 -- ./billing
  primacy run --lease 3s --grace 1s --once -- ./worker
  primacy run --try --quiet -- ./report                  not at all where another leads
  primacy run --for 5m -- ./migrate                      wait for five minutes at most
  primacy run --isolate -- ./worker-that-forks
  primacy run --http 127.0.0.1:8008 -- ./service         GET /leader is 200 while it leads
  primacy run --lease 500ms --renew 100ms --grace 50ms -- ./worker
  primacy run --prefer db-1,'db-*' --never db-backup -- ./writer
  primacy run --score-command ./how-fresh --score-class 100 -- ./writer
  primacy run --store peers:///run/primacy/a.socket --score-oracle latency -- ./writer
  primacy run --protocol registers --round 2s -- ./writer
  primacy run --on-elected ./promote --on-lost ./demote  for programs that stay warm
  primacy run --agent --election billing -- ./billing    through the agent of this host, without a store

CMD gets PRIMACY_ELECTION, PRIMACY_NAME and PRIMACY_TOKEN in its environment. When the leadership is lost it gets \
SIGTERM, and SIGKILL after the grace, before anybody else may lead.
Each transition is a line on standard error; --quiet leaves errors only.
--on-lost is run before the candidate campaigns, and when the leadership ends. The lease is given back when it has succeeded.
Exit codes: CMD's own (128 + n for a signal), 2 wrong usage, 69 the store could not be reached or used, 70 --on-lost has not succeeded in time, \
or --on-elected with --once, 71 primacy's own \
processes cannot be started or do not stay alive, 75 lost the leadership with --once, or did not have it with --try or \
--for, 77 asked to end while some of CMD or of a hook may not be killed, 126 CMD cannot be executed, 127 CMD not found.";

/// What fits on one screen.
pub(crate) const AGENT_SHORT: &str = "\
Examples:
  primacy agent
  primacy agent --config /etc/primacy/agent.toml
  primacy agent list

Programs connect to its socket, with a client for Python, Go or Node. All options and the configuration: --help-all.";

pub(crate) const AGENT: &str = "\
Examples:
  primacy agent                                          any election, for programs of this user
  primacy agent --config /etc/primacy/agent.toml
  primacy agent check --config /etc/primacy/agent.toml
  primacy agent list                                     who holds what on this host

A configuration:
  name = \"web-1\"
  store = \"postgres://primacy@db/primacy\"
  group = \"www-data\"           # of the socket: its users may connect
  [[election]]
  name = \"billing\"             # one '*' stands for any characters
  lease = \"10s\"
  grace = \"2s\"
  holders = [\"billing\", \"@www-data\"]
  operators = [\"ops\"]
  [[election]]
  name = \"reports\"
  holders = []                 # the agent's user and root
  [[program]]                  # one that the agent starts itself, while it leads
  name = \"reports\"
  election = \"reports\"
  command = [\"/usr/bin/reports\", \"--port\", \"8080\"]

SIGHUP reads it again. SIGTERM tells all programs to stop their work, and ends when they have; a second one ends at once.
Exit codes: 0 asked to end, 2 wrong usage, 69 the store cannot be used or the socket cannot be had.";

pub(crate) const AGENT_LIST: &str = "\
Examples:
  primacy agent list
  primacy agent list --socket /run/primacy/agent.sock --json";

pub(crate) const AGENT_CHECK: &str = "\
Examples:
  primacy agent check --config /etc/primacy/agent.toml";

pub(crate) const STATUS: &str = "\
Examples:
  primacy status
  primacy status --election billing --explain
  primacy status --json | jq -r '.leader.data // empty'
  primacy status --quiet && echo somebody leads

Exit codes: 0 somebody leads, 1 nobody does as far as can be told, 2 wrong usage, 69 the store was not reached.";

pub(crate) const LIST: &str = "\
Examples:
  primacy list
  primacy list --store sqlite:/var/lib/primacy/primacy.db --json";

pub(crate) const MEMBERS: &str = "\
Examples:
  primacy members
  primacy members --watch
  primacy members --json | jq -r '.members[] | [.place, .label] | @tsv'

Exit codes: 0 somebody leads, 1 nobody does as far as can be told, 2 wrong usage, 69 the store was not reached.
With --watch it ends with Ctrl-C or --count. While the store is away it says so and goes on.";

pub(crate) const WATCH: &str = "\
Examples:
  primacy watch
  primacy watch --until-leader --quiet    wait until somebody leads
  primacy watch --json | while read -r line; do ./announce \"$line\"; done

Ends with Ctrl-C, --count or --until-leader. While the store is away it says so and goes on.";

pub(crate) const HISTORY: &str = "\
Examples:
  primacy history --limit 5
  primacy history --json | jq -r '.terms[] | [.token, .leader.label, .ended] | @tsv'

Times of day come from the clocks of those who wrote them, and inform only.
Exit codes: 0 shown, 1 nobody has ever campaigned in this election.";

pub(crate) const PROMOTE: &str = "\
Examples:
  primacy promote web-2
  primacy promote 5b1f0c8a            the candidate whose id begins so
  primacy promote web-2 --token 17    only if the leadership with token 17 is still the last
  primacy promote web-2 --no-wait --json

A live leader stops its work and hands over at once; a dead one's lease is waited out, unless --now.
Exit codes: 0 the successor leads (with --no-wait: the order stands), 1 refused and nothing changed, \
3 the order stands but another candidate leads, or nobody yet.";

pub(crate) const DEPOSE: &str = "\
Examples:
  primacy depose
  primacy depose --token 17     only if the leadership with token 17 is still the last
  primacy depose --now          do not wait out the lease of a leader that is known to be dead

Exit codes: 0 another candidate leads (with --no-wait: the order stands), 1 refused and nothing changed, \
3 the order stands but nobody else leads yet.";

pub(crate) const PAUSE: &str = "\
Examples:
  primacy pause --election billing

The leader goes on. Once it stops, nobody takes its place until `primacy resume`.";

pub(crate) const RESUME: &str = "\
Examples:
  primacy resume --election billing";

pub(crate) const FORGET: &str = "\
Examples:
  primacy forget billing
  primacy forget billing --store postgres://app@db.example/app --json

Everything about the election goes: its record, its history, its hint file. What stays is its token, raised by one: if the \
election begins again, each token is larger than all before, and resources refuse a leader from before. \
Refused while somebody leads or waits, and while the election is paused. In a database this takes rights that candidates have \
not: the end of `primacy schema` shows them.
Exit codes: 0 it is forgotten, 1 refused, 69 the store was not reached.";

pub(crate) const DOCTOR: &str = "\
Examples:
  primacy doctor
  primacy doctor --lease 3s --grace 1s
  primacy doctor --json | jq .recommended

Exit codes: 0 all is fine, 1 a warning, 3 a promise of primacy does not hold, 69 the store was not reached.";

pub(crate) const SIMULATE: &str = "\
Examples:
  primacy simulate
  primacy simulate --lease 3s --grace 1s --candidates 5 --round-trip 40ms
  primacy simulate --seeds 100000 --json | jq .silent_losses
  primacy simulate --lease 3s --replay 17 | less

The state machine of `primacy run` lives in worlds in which clocks drift, calls are lost, processes stop and die. A number \
decides everything in a world, so each can be seen again. No store is used.
Exit codes: 0 no promise was broken, 2 wrong usage, 3 a promise was broken: please report it with the line it prints.";

/// What fits on one screen.
pub(crate) const PEER_SHORT: &str = "\
Examples:
  primacy peer certs certs a b c web-1 operator
  primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400

Never copy the folder of a peer, and never bring an older copy back: that voter would vote twice.
All options, examples and exit codes: --help-all.";

pub(crate) const PEER: &str = "\
Examples:
  primacy peer certs certs a b c web-1 web-2 operator     one certificate for each peer and candidate, and for orders
  primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400
  primacy run --store 'peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1' -- ./jobs
  primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400 --socket /run/primacy/a.socket
  primacy run --store peers:///run/primacy/a.socket -- ./jobs     on the machine of a, without a certificate
  primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400 --requests-command ./per-second
  primacy peer replace c c@10.0.0.3:7400         when the folder of c was lost

Start one peer on each of three or five machines, with the same --peers. Elections go on while more than half of them live.
Never copy the folder of a peer, and never bring an older copy of it back: that voter would vote twice.
It reads its certificates anew when they change, and on SIGHUP at once. SIGTERM and SIGINT end it, and then the exit code is 0.
Exit codes: 2 wrong usage, also other --peers than before, 69 it cannot vote: no such port or socket, folder in use or damaged, \
74 its file could not be written.";

pub(crate) const PEER_CERTS: &str = "\
Examples:
  primacy peer certs certs a b c web-1 web-2 operator
  primacy peer certs certs a --days 30           a new one for a; the others stay

The name is the role: that of a voter, of an operator (operator, operator-*), of an observer, or else of a candidate.
Operators give orders and exchange voters; observers (observer, observer-*) only look.
Other names for both: --operators and --observers of primacy peer.
Each peer and candidate needs ca.pem and the two files of its name. ca.key signs more, and is needed for nothing else.
Exit codes: 0 made, 2 wrong usage or an authority of another kind in the folder, 74 a file could not be written.";

pub(crate) const PEER_REVOKE: &str = "\
Examples:
  primacy peer revoke certs web-1            all that was made for web-1 until now; a new one for it is good
  primacy peer revoke certs ./old/web-1.pem  the one in this file

It writes ca.crl. Bring that to each peer and candidate: beside ca.pem for --certs and ?certs=, elsewhere with --crl and &crl=.
Each takes it within 10 s: new connections with these certificates are refused by both sides, and those that stand end.
With an authority of your own: openssl ca -revoke CERT, then openssl ca -gencrl -out ca.crl.
Exit codes: 0 revoked, now or before, 2 wrong usage, no such certificate or no authority in the folder, 74 a file could not be \
written.";

pub(crate) const PEER_LIST: &str = "\
Examples:
  primacy peer list --store 'peers://a@10.0.0.1:7400,b@10.0.0.2:7400?certs=certs&name=operator'

Exit codes: 0 shown, 2 wrong usage, 69 no majority of the voters can be reached.";

pub(crate) const PEER_ADD: &str = "\
Examples:
  primacy peer --name d --certs certs --peers a@10.0.0.1:7400,d@10.0.0.4:7400     on its machine: it waits
  primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400     with PRIMACY_STORE, as for primacy run

Elections go on meanwhile. It returns when the new voters vote, after one lease at most. If it ends early, do the same \
again: what has begun is finished, and what is done already is not done twice.
Exit codes: 0 they vote, 1 refused with nothing changed, 2 wrong usage, 3 begun but not finished, \
69 no majority of the voters can be reached.";

pub(crate) const PEER_REMOVE: &str = "\
Examples:
  primacy peer remove c         c ends by itself, and its folder can be removed

A majority of those who stay must be up. If it ends early, do the same again.
Exit codes: 0 they vote no more, 1 refused with nothing changed, 2 wrong usage, 3 begun but not finished, \
69 no majority of the voters can be reached.";

pub(crate) const PEER_REPLACE: &str = "\
Examples:
  primacy peer replace c c@10.0.0.3:7400     c started again with an empty folder, since the old one was lost
  primacy peer replace c d@10.0.0.4:7400     d in the place of c

If it ends early, do the same again.
Exit codes: 0 done, 1 refused with nothing changed, 2 wrong usage, 3 begun but not finished, \
69 no majority of the voters can be reached.";

pub(crate) const PEER_CONFIRM: &str = "\
Examples:
  primacy peer confirm          when a voter says that it cannot prove who votes by now

Run it with an operator's certificate, or on the machine of a voter through its socket. Nobody comes or goes by it.
Exit codes: 0 done, 2 wrong usage, 3 begun but not finished, 69 no majority of the voters can be reached, or only operators may.";

/// What fits on one screen.
#[cfg(feature = "kv")]
pub(crate) const KV_SHORT: &str = "\
Examples:
  primacy kv                      a node alone: redis-cli talks to it
  primacy kv --name a --peers a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403 --dir /srv/a

Never copy the folder of a node, and never bring an older copy back.
All options, examples and exit codes: --help-all.";

#[cfg(feature = "kv")]
pub(crate) const KV: &str = "\
Examples:
  primacy kv                                  a node alone: redis-cli talks to it
  primacy kv --name a --peers a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403 --listen 127.0.0.1:6381
  primacy kv --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400 --listen 0.0.0.0:6379 \
--password-file password --tls-cert kv.pem --tls-key kv.key
  primacy kv status --json | jq '.groups[] | select(.is_led_here) | .group'
  primacy status --store peers://a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403 --election kv/3
  primacy kv replace c                        when the folder of c was lost, and c runs again with an empty one

Start one node on each of three or five machines, with the same --peers. Keys are served while more than half of them live, and \
nothing that was acknowledged is lost. Each group is an election kv/N of the nodes' voters: primacy status, watch, history, promote and \
pause steer it.
Never copy the folder of a node, and never bring an older copy of it back. SIGTERM and SIGINT hand its leaderships over and end it.
Exit codes: 0 it was asked to end, 2 wrong usage, also another node's folder, 69 it cannot serve or vote, 74 its disk failed or what was \
on it is damaged.";

#[cfg(feature = "kv")]
pub(crate) const KV_STATUS: &str = "\
Examples:
  primacy kv status
  primacy kv status --dir /var/lib/primacy/kv-a --json

Exit codes: 0 all groups have a leader as far as the node knows, 1 some have none, 2 wrong usage, 69 no node runs there.";

#[cfg(feature = "kv")]
pub(crate) const KV_EXPLAIN: &str = "\
Examples:
  primacy kv explain 3

Exit codes: 0 told, 1 there is no such group, 2 wrong usage, 69 no node runs there.";

#[cfg(feature = "kv")]
pub(crate) const KV_REPLACE: &str = "\
Examples:
  primacy kv replace c             on the machine of a or b, when c runs again with an empty folder

It exchanges the voter first, then the replica of each group, while keys are served. If it ends early, do the same again.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 begun but not finished, 69 no node runs there.";

#[cfg(feature = "kv")]
pub(crate) const KV_SNAPSHOT: &str = "\
Examples:
  primacy kv snapshot

Exit codes: 0 they are taken, one after another, 2 wrong usage, 69 no node runs there.";

#[cfg(feature = "kv")]
pub(crate) const KV_CHECK: &str = "\
Examples:
  primacy kv check /var/lib/primacy/kv-a

Exit codes: 0 sound, 1 damaged, 2 wrong usage, 69 the folder is in use, is no node's or cannot be read.";

pub(crate) const SCHEMA: &str = "\
Examples:
  primacy schema postgres | psql \"$ADMIN_URL\"
  primacy schema mysql | mariadb -u root elections
  primacy schema postgres --fence-only     for a database of yours that refuses what a deposed leader writes
  primacy schema sqlite | sqlite3 jobs.db

primacy sets its store up by itself where its user may create tables; this is for where it may not. The SQL may be run \
again. It ends with the rights that programs need, as comments.";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  primacy completions bash > /usr/share/bash-completion/completions/primacy
  primacy completions zsh > ~/.zfunc/_primacy
  primacy completions fish > ~/.config/fish/completions/primacy.fish";

pub(crate) const MAN: &str = "\
Examples:
  primacy man | man -l -
  primacy man --dir /usr/local/share/man/man1";

pub(crate) const VERSION: &str = "\
Examples:
  primacy version";
