#!/usr/bin/perl
# A hook that tells when it starts and when it succeeds: to standard output, and at the end of a file that all hooks of a test share.
# It knows nothing of primacy but its environment, and tells the kernel's boot clock with every line.
# Usage: hook.pl FILE WORD [linger=SECONDS] [fail-if=PATH] [fail-once=PATH] [wait-while=PATH]
use strict;
use warnings;
use Time::HiRes qw(clock_gettime sleep);

use constant CLOCK_BOOTTIME => 7;

my ($file, $hook, @wishes) = @ARGV;
my %wish = map { /^(.*?)=(.*)$/ ? ($1 => $2) : ($_ => 1) } @wishes;
my $token = $ENV{PRIMACY_TOKEN} // 0;

open my $witness, '>>', $file or die "$file: $!";

sub announce {
    my ($word) = @_;
    # One write of less than PIPE_BUF bytes: lines of several processes do not mix.
    my $line = sprintf("%s-%s %s %d %s %.0f\n", $hook, $word, $token, $$, $ENV{PRIMACY_NAME}, clock_gettime(CLOCK_BOOTTIME) * 1e9);
    syswrite $witness, $line;
    syswrite STDOUT, $line;
}

$SIG{TERM} = 'IGNORE';
announce('start');
if ($wish{'wait-while'}) { sleep 0.005 while -e $wish{'wait-while'} }
if ($wish{linger}) { sleep $wish{linger} }
if ($wish{'fail-if'} && -e $wish{'fail-if'}) { exit 3 }
if ($wish{'fail-once'} && unlink $wish{'fail-once'}) { exit 3 }
announce('done');
