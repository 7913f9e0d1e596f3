# In a clean Debian system, as root of it: the package and the archive, from installation to removal.
# usage: installed.sh VERSION, with both and their checksums in /trial, and the client for Python in /trial/python.
set -euo pipefail
version=$1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
trap 'echo "installed.sh: line $LINENO failed" >&2' ERR

# What there is, but for notes of package managers and caches.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /trial -o -path /var/cache \
        -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd \) -prune -o -print | sort
}

useradd --create-home ann
cd /
(cd /trial && sha256sum --check --quiet --ignore-missing SHA256SUMS)
files >/tmp/before

echo "  installs"
apt-get install --quiet --quiet --yes --no-install-recommends /trial/primacy_*.deb >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
[ "$(primacy --version)" = "primacy $version" ]
[ "$(stat --format='%U %a' /usr/bin/primacy)" = "root 755" ]
# No file can be changed by others, and none gives rights to who runs it.
! dpkg --listfiles primacy | xargs -d '\n' stat --format='%F %a %n' | grep -v -E '^(directory|regular file) (755|644) ' || exit 1

echo "  has pages and completions"
man --where primacy primacy-run primacy-agent >/dev/null
man primacy-agent | grep -q 'Campaign for programs'
bash -c 'source /usr/share/bash-completion/completions/primacy && complete -p primacy' >/dev/null
[ -s /usr/share/zsh/vendor-completions/_primacy ] && [ -s /usr/share/fish/vendor_completions.d/primacy.fish ]
grep -q 'License: MIT' /usr/share/doc/primacy/copyright
zgrep -q "^primacy ($version-1)" /usr/share/doc/primacy/changelog.Debian.gz

echo "  has units that systemd takes and nobody has turned on"
systemd-analyze verify --man=no /usr/lib/systemd/system/primacy-agent.{service,socket} 2>/tmp/units || { cat /tmp/units; exit 1; }
! grep primacy /tmp/units || exit 1
for unit in primacy-agent.service primacy-agent.socket; do
    [ "$(systemctl is-enabled $unit || true)" = disabled ]
done

echo "  leads, as an ordinary user, by a file"
runuser -u ann -- primacy run --quiet -- sh -c 'echo $PRIMACY_TOKEN >~/token; id -un >~/who'
[ "$(cat ~ann/token ~ann/who)" = "1
ann" ]
runuser -u ann -- primacy history | grep -q '  1 '
[ "$(stat --format='%U %a' ~ann/.local/state/primacy)" = "ann 700" ]

echo "  has an agent, by the example of its configuration, and a program leads through it"
install -d /etc/primacy
cp /usr/share/doc/primacy/examples/agent.toml /etc/primacy/agent.toml
primacy agent check --quiet --config /etc/primacy/agent.toml
install -d --owner=primacy --group=primacy --mode=0755 /run/primacy
install -d --owner=primacy --group=primacy --mode=0700 /var/lib/primacy
STATE_DIRECTORY=/var/lib/primacy setpriv --reuid=primacy --regid=primacy --clear-groups \
    primacy agent --config /etc/primacy/agent.toml 2>/tmp/agent.log &
agent=$!
until primacy agent list >/dev/null 2>&1; do kill -0 $agent || { cat /tmp/agent.log; exit 1; }; done
lead='import primacy
with primacy.lead("billing", proof="process") as leadership:
    print(leadership.token)'
usermod --append --groups primacy ann
[ "$(runuser -u ann -- env PYTHONPATH=/trial/python python3 -c "$lead")" = 1 ]
kill $agent
wait $agent

echo "  is removed, and nothing stays but what elections have written"
rm -r /etc/primacy /run/primacy /var/lib/primacy ~ann/.local ~ann/token ~ann/who
apt-get remove --quiet --quiet --yes primacy >/dev/null
dpkg --purge primacy >/dev/null 2>&1
files >/tmp/after
diff /tmp/before /tmp/after

echo "  the archive unpacks, and leads"
tar --extract --gzip --directory /opt --file /trial/primacy-*-linux.tar.gz
cd /opt/primacy-*-linux
[ "$(bin/primacy --version)" = "primacy $version" ]
[ -s LICENSE-MIT ] && [ -s LICENSES-THIRD-PARTY ] && [ -s contrib/systemd/primacy-agent.service ]
man --local-file share/man/man1/primacy.1 | grep -q 'primacy'
runuser -u ann -- bin/primacy run --quiet -- sh -c 'echo $PRIMACY_TOKEN >~/token'
[ "$(cat ~ann/token)" = 1 ]
echo COMPLETE
