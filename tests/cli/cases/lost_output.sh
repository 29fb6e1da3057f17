# A command whose standard output cannot be written says so, and ends with exit code 4. A pipe without a reader is no error.
program=$folder/bin/hasten
without_reason() { sed -E 's/(cannot be written): got .*/\1/'; } # the reason depends on the amount of output
full() { "$program" "$@" >/dev/full; echo "exit code $?"; }
closed() { "$program" "$@" >&-; echo "exit code $?"; }
unread() { (trap '' PIPE; sleep 0.5; "$program" "$@"; echo "exit code $?" >&2) | true; }

echo "## a full disk"
full --version
for command in --help 'env --json' 'train --help' 'train --model bert-base --data dummy --print_config'; do full $command 2>&1 | without_reason; done
echo "## the exit code of an error remains"
full env --jsn 2>&1 | grep -v error
echo "## a closed stream"
closed --version
closed env 2>&1 | without_reason
echo "## a program that hasten starts gets what hasten has got"
closed train --model bert-base --data dummy
echo "## a pipe without a reader"
unread --help
unread env --json
