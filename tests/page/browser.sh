# Source this file. It finds a browser, changes to a temporary folder, and defines functions that check pages.
# A browser from a snap cannot read files in /tmp. On Ubuntu, chromium and chromium-browser are scripts that start one.
is_snap() {
  case $(readlink -f "$1") in
    */snap/* | */snap) return 0 ;;
    *) head -c 4096 "$1" | grep -qa /snap/bin ;;
  esac
}
browser=
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
  if path=$(command -v $name) && ! is_snap "$path"; then browser=$path; break; fi
done
[ -n "$browser" ] || { echo "skipped: no browser is installed, or only one from a snap (Debian: chromium-headless-shell)"; exit 0; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "page: $*" >&2; exit 1; }

check_fetches_nothing() {
  ! grep -E '(src|href)=|https?://' "$1" | grep -v 'www.w3.org/2000/svg' || fail "$1: the page fetches something"
}

# render PAGE WIDTH SCHEME: runs the page's script and then writes the page's elements to the file dom. SCHEME 0 is dark.
render() {
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" --enable-logging=stderr \
    --window-size="$2",2000 --blink-settings=preferredColorScheme="$3" --virtual-time-budget=3000 --dump-dom "file://$folder/$1" >dom 2>log
  ! grep -E 'CONSOLE.*(rror|Uncaught)' log || fail "$1 at $2: the console has an error"
}
