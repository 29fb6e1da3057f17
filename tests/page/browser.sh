# To be sourced: a folder of its own to work in, and a real browser that looks at pages.
browser=$(command -v chromium || command -v chromium-browser || true)
[ -n "$browser" ] || { echo "skipped: chromium is missing (Debian: chromium)"; exit 0; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "page: $*" >&2; exit 1; }

fetches_nothing() {
  ! grep -E '(src|href)=|https?://' "$1" | grep -v 'www.w3.org/2000/svg' || fail "$1: something is fetched from elsewhere"
}

# look PAGE WIDTH SCHEME: the page's elements after its script has run, in $dom; 0 is dark.
look() {
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" --enable-logging=stderr \
    --window-size="$2",2000 --blink-settings=preferredColorScheme="$3" --virtual-time-budget=3000 --dump-dom "file://$folder/$1" >dom 2>log
  ! grep -E 'CONSOLE.*(rror|Uncaught)' log || fail "$1 at $2: the console tells of an error"
}
