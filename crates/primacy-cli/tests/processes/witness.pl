#!/usr/bin/perl
# A program that may only ever run once at a time, and can prove when it did not: it knows nothing of primacy but its
# environment. It holds a kernel lock for as long as any process that it started lives, and tells the kernel's boot
# clock with every line. Usage: witness.pl LOCKFILE [ignore-term] [fork] [escape] [exit=N] [linger=SECONDS] [fence=FILE]
use strict;
use warnings;
use Fcntl qw(:flock F_SETLKW F_WRLCK SEEK_SET);
use POSIX ();
use Time::HiRes qw(clock_gettime sleep);

use constant CLOCK_BOOTTIME => 7;

my ($lockfile, @wishes) = @ARGV;
my %wish = map { /^(.*?)=(.*)$/ ? ($1 => $2) : ($_ => 1) } @wishes;
my $token = $ENV{PRIMACY_TOKEN};

sub announce {
    my ($word) = @_;
    # One write of less than PIPE_BUF bytes: lines of several processes do not mix.
    syswrite STDOUT, sprintf("%s %s %d %s %.0f\n", $word, $token, $$, $ENV{PRIMACY_NAME}, clock_gettime(CLOCK_BOOTTIME) * 1e9);
}

# Closed on exec or not, descendants share this lock.
$^F = 1000;
open my $lock, '>>', $lockfile or die "$lockfile: $!";
announce('overlap') unless flock $lock, LOCK_EX | LOCK_NB;

# A resource that remembers the highest token and refuses smaller ones. Its lock is one of POSIX, not of flock: a test
# that stops this process tells by the kind of lock that it was in here, where it would keep others from the resource.
sub fenced_write {
    open my $resource, '+>>', $wish{fence} or die "$wish{fence}: $!";
    my $whole_file = pack 's s x4 q q i x4', F_WRLCK, SEEK_SET, 0, 0, 0; # struct flock on 64 bits
    fcntl $resource, F_SETLKW, $whole_file or die "$wish{fence}: $!";
    seek $resource, 0, SEEK_SET;
    my $highest = 0;
    while (<$resource>) { $highest = $_ if $_ > $highest }
    if ($token < $highest) { announce('refused') }
    else                   { syswrite $resource, "$token\n" if $token > $highest }
    close $resource;
}

my $told = 0;
$SIG{TERM} = $wish{'ignore-term'} ? 'IGNORE' : sub { $told = 'TERM' };
$SIG{$_} = do { my $name = $_; sub { announce("got-$name") } } for qw(USR1 HUP INT);

if ($wish{fork} && !fork) { POSIX::_exit(0) if fork; sleep 1000 while 1 }
if ($wish{escape} && !fork) { POSIX::setsid(); POSIX::_exit(0) if fork; $SIG{TERM} = 'IGNORE'; sleep 1000 while 1 }

announce('start');
if (defined $wish{exit}) { exit $wish{exit} }
while (1) {
    sleep 0.005;
    if ($told) {
        announce('told');
        sleep $wish{linger} if $wish{linger};
        announce('end');
        exit 0;
    }
    fenced_write() if $wish{fence};
    announce('beat');
}
