# The parent of one server: starts it when told, and when the test is gone, however it went, ends it and removes its folder.
# Arguments: the server's folder, and the signal that ends it at once. Orders come on standard input; each but the last is answered with one line.
folder=$1
end=$2
data=$folder/data
main=

# Signals everything that works in the data folder, which includes what a killed server has left behind.
signal_all() {
  count=0
  for process in /proc/[0-9]*; do
    if [ "$process/cwd" -ef "$data" ] && kill "-$1" "${process#/proc/}"; then count=$((count + 1)); fi
  done
}

while read -r order argument; do
  case $order in
    run) sh "$folder/run" </dev/null >>"$folder/log" 2>&1 & main=$!; echo "$main" ;;
    one) kill "-$argument" "$main"; echo "$?" ;;
    all) signal_all "$argument"; echo "$count" ;;
    wait) wait "$main"; echo "$?"; main= ;;
  esac
done 2>/dev/null

# End of file: nobody holds the other end any more.
exec 2>/dev/null
# A server that ends by itself also reaps its children, which not every init does. One that hangs is killed.
if [ -n "$main" ] && kill "-$end" "$main"; then
  signal_all CONT
  turns=200
  while [ "$turns" -gt 0 ] && [ "/proc/$main/cwd" -ef "$data" ]; do
    sleep 0.01
    turns=$((turns - 1))
  done
fi
signal_all KILL
while [ "$count" -gt 0 ]; do
  sleep 0.01
  signal_all KILL
done
# PostgreSQL leaves a segment of shared memory when it is killed; the seventh line names it.
if [ -f "$data/postmaster.pid" ]; then
  ipcrm -m "$(sed -n '7s/.* //p' "$data/postmaster.pid")"
fi >/dev/null
# It may be a disk of its own.
umount --lazy "$data"
# The shell may read this file line by line, so nothing may follow.
rm -rf "$folder"
