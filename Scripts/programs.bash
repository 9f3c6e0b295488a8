# Sourced by Scripts/programs, in a shell for each program that ends with all that it starts: what the programs do. The
# current folder is the program's own in the mount. What try_NAME prints is in the table; its status is the result.
#   work, mount, origin  folders; origin has what each folder of the mount has
#   list, url            the list of the mount, and where its files are
#   files                how many they are
#   log                  for what a server says
die() { echo "$*" >&2; exit 1; }
eventually() { for _ in {1..300}; do ! "$@" >/dev/null 2>&1 || return 0; sleep 0.1; done; die "never succeeded: $*"; }
serve() { "$@" >"$log" 2>&1 </dev/null & } # a server, which ends with this shell
port() { echo $((20000 + RANDOM % 20000)); }
all() { for file in "$origin"/*; do "$@" "${file##*/}"; done; }
films() { for file in film.mp4 last.mp4 film.mkv film.avi film.ts film.webm; do "$@" "$file"; done; }
songs() { for file in song.flac song.mp3 song.ogg song.m4a song.wav; do "$@" "$file"; done; }
# alike COMMAND...: prints the same in the mount as in the origin's folder, and something.
alike() {
  local here there
  here=$("$@")
  there=$(cd "$origin" && "$@")
  [ -n "$here" ]
  diff <(echo "$here") <(echo "$there")
}
got() { cmp "$1" "$origin/$2"; }
by_http() { curl -sSf "$1/$2" | cmp - "$origin/$2"; }
# Each file from an HTTP server, and a range of one.
all_by_http() {
  eventually curl -sf "$1/film.vtt"
  all by_http "$1"
  curl -sSf -r 300000-399999 "$1/film.ts" | cmp - <(tail -c +300001 "$origin/film.ts" | head -c 100000)
}
# with_new_song COMMAND...: succeeds, soon, with one more song in the list.
with_new_song() {
  cp "$list" "$work/before"
  printf '%s/song.mp3?n=new\n  dir=%s\n  out=new song.mp3\n' "$url" "${PWD##*/}" >>"$list"
  "$mediafs" reload "$mount" >/dev/null
  eventually "$@"
  cp "$work/before" "$list"
  "$mediafs" reload "$mount" >/dev/null
}

probe() {
  ffprobe -analyzeduration 200M -probesize 1G -i "$1" -threads 0 -v warning -print_format json -show_streams \
    -show_chapters -show_format
}
image() {
  ffmpeg -nostdin -v error -ss 3 -i "$1" -threads 1 -vframes 1 -vf thumbnail=n=24 -f image2pipe -c:v png - | md5sum
}
try_ffprobe() { films alike probe; songs alike probe; echo "Jellyfin's probe: the same facts"; }
try_ffmpeg() { films alike image; echo "Jellyfin's image: the same"; }
thumbnail() { ffmpegthumbnailer -i "$1" -o - -c png | md5sum; }
try_ffmpegthumbnailer() { films alike thumbnail; echo 'the same pictures'; }
try_mediainfo() { all alike mediainfo --Output=JSON; echo 'the same facts'; }
try_exiftool() { songs alike exiftool -q -j --System:all; echo 'the same facts'; }
try_file() { all alike file; echo 'the same kinds'; }

play_mpv() { timeout 20 mpv --no-config --really-quiet --vo=null --ao=null --untimed --start=2 --length=3 "$1"; }
dump_mpv() {
  mpv --no-config --really-quiet --stream-dump="$work/dump" "$1"
  got "$work/dump" "$1"
}
try_mpv() { films play_mpv; songs play_mpv; all dump_mpv; echo 'plays from 2 s; the same bytes'; }
vlc() {
  local user=()
  [ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
  "${user[@]}" env HOME="$work/vlc" XDG_RUNTIME_DIR="$work/vlc" timeout 40 cvlc -q --vout dummy --aout dummy "$@"
}
play_vlc() { vlc --intf dummy --run-time=1 --play-and-exit "$PWD/$1" vlc://quit; }
# Of songs, VLC skips the tags before it dumps.
dump_vlc() {
  vlc --intf dummy --demux demuxdump --demuxdump-file "$work/vlc/dump" "$PWD/$1" vlc://quit
  got "$work/vlc/dump" "$1"
}
# Whether VLC, behind descriptor 3, is at a second of the film.
is_at() {
  local answers
  echo get_time >&3
  answers=$(timeout 0.2 cat <&3 || true) # VLC does not close it
  tr -d '\r> ' <<<"$answers" | grep -qx "$1"
}
seek_vlc() { echo "seek $1" >&3; eventually is_at "$1"; }
try_vlc() {
  films play_vlc
  songs play_vlc
  films dump_vlc
  local port; port=$(port)
  serve vlc --intf rc --rc-host "127.0.0.1:$port" --rc-fake-tty "$PWD/film.mp4"
  eventually bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  for seconds in 15 4 11; do seek_vlc $seconds; done
  echo shutdown >&3
  echo 'plays, seeks; the same bytes'
}
play_mplayer() { timeout 30 mplayer -really-quiet -nolirc -vo null -ao null -ss 2 -endpos 1 "$1" </dev/null; }
dump_mplayer() {
  mplayer -really-quiet -nolirc -dumpstream -dumpfile "$work/dump" "$1" </dev/null
  got "$work/dump" "$1"
}
try_mplayer() { films play_mplayer; songs play_mplayer; films dump_mplayer; echo 'plays from 2 s; the same bytes'; }
play_gst() {
  timeout 30 gst-launch-1.0 -q playbin uri="file://$PWD/$1" video-sink='fakesink sync=false' \
    audio-sink='fakesink sync=false'
}
try_gst() { films play_gst; songs play_gst; echo 'playbin, to the end'; }

try_rsync() {
  rsync -a ./ "$work/rsync"
  diff -r "$work/rsync" "$origin"
  [ -z "$(rsync -ai ./ "$work/rsync")" ] || die 'rsync copies again'
  echo 'the same bytes; -a copies nothing twice'
}
try_tar() {
  mkdir "$work/tar"
  tar -c . | tar -x -C "$work/tar"
  diff -r "$work/tar" "$origin"
  echo 'the same bytes'
}
try_cp() {
  cp -a . "$work/cp"
  diff -r "$work/cp" "$origin"
  rm -r "$work/cp"
  echo 'the same bytes; the copy can be removed'
}
sizes() { find . -type f -printf '%f %s\n' | sort; }
try_find() { alike sizes; du -s . >/dev/null; echo 'names and sizes, and du'; }
try_restic() {
  export RESTIC_REPOSITORY=$work/restic RESTIC_PASSWORD=x
  restic -q init
  restic -q backup .
  restic backup --json . >"$log"
  grep -q "\"files_new\":0,\"files_changed\":0,\"files_unmodified\":$files," "$log" || die 'restic reads files again'
  restic -q check
  restic -q restore latest --target "$work/restored"
  diff -r "$work/restored" "$origin"
  echo 'the same bytes; the second backup reads none'
}
try_updatedb() {
  updatedb -l 0 -o "$work/places" -U "$PWD" --prunepaths '' --prunefs ''
  [ "$(plocate -d "$work/places" -c film.mkv)" -eq 1 ]
  echo 'names alone'
}
try_lsof() {
  exec 3<song.ogg
  lsof -t song.ogg 2>/dev/null | grep -qx $$
  fuser song.ogg 2>/dev/null | grep -qw $$
  echo 'lsof and fuser name the reader'
}
try_inotifywait() {
  serve inotifywait -m -e create,close_write,delete --format %e .
  eventually grep -q established "$log"
  with_new_song grep -q CLOSE_WRITE "$log"
  eventually grep -q DELETE "$log"
  echo 'a file that comes and goes'
}

try_rclone() {
  local kind port
  for kind in webdav http; do
    port=$(port)
    serve rclone serve "$kind" --read-only --addr "127.0.0.1:$port" .
    all_by_http "http://127.0.0.1:$port"
  done
  rclone -q check . "$origin"
  echo 'serve webdav, serve http, check: the same bytes'
}
try_python3() {
  local port; port=$(port)
  serve python3 -m http.server --bind 127.0.0.1 "$port"
  eventually curl -sf "http://127.0.0.1:$port/film.vtt"
  all by_http "http://127.0.0.1:$port"
  echo 'http.server: the same bytes'
}
samba() { smbclient -s "$work/smb/conf" -p "$port" -N //127.0.0.1/media -c "$1"; }
try_smbd() {
  local port folder=$work/smb; port=$(port)
  mkdir "$folder" "$work/got"
  printf '%s\n' '[global]' 'map to guest = Bad User' 'interfaces = lo' 'bind interfaces only = yes' \
    "smb ports = $port" 'disable netbios = yes' 'load printers = no' "log file = $folder/log" \
    {private\ dir,lock\ directory,state\ directory,cache\ directory,pid\ directory,ncalrpc\ dir}" = $folder" \
    '[media]' "path = $PWD" 'guest ok = yes' 'read only = yes' >"$folder/conf"
  serve smbd -s "$folder/conf" -F
  eventually samba ls
  (cd "$work/got" && samba 'prompt off; mget *')
  diff -r "$work/got" "$origin"
  echo 'read by smbclient: the same bytes'
}
# The number of a file in minidlna's database.
in_dlna() {
  python3 -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())' \
    "$work/dlna/files.db" "select ID from DETAILS where MIME > '' and PATH like '%/$1'"
}
try_minidlnad() {
  local port folder=$work/dlna; port=$(port)
  mkdir "$folder"
  printf '%s\n' "port=$port" network_interface=lo "media_dir=$PWD" "db_dir=$folder" "log_dir=$folder" >"$folder/conf"
  serve minidlnad -S -f "$folder/conf" -P "$folder/pid"
  # It knows no WebM.
  for file in film.mp4 last.mp4 film.mkv film.avi film.ts; do eventually in_dlna "$file"; done
  songs eventually in_dlna
  curl -sSf "http://127.0.0.1:$port/MediaItems/$(in_dlna film.ts).ts" | cmp - "$origin/film.ts"
  with_new_song in_dlna 'new song.mp3'
  echo 'scans, serves the same bytes, finds a new song'
}
playing_mpd() { mpc | grep -q '0:0[1-9]/'; }
in_mpd() { mpc listall | grep -qx "$1"; }
try_mpd() {
  export MPD_HOST=$work/mpd.socket
  printf '%s\n' "music_directory \"$PWD\"" "db_file \"$work/mpd.db\"" "bind_to_address \"$MPD_HOST\"" \
    'auto_update "yes"' 'audio_output {' 'type "null"' 'name "none"' '}' >"$work/mpd.conf"
  serve mpd --no-daemon "$work/mpd.conf"
  eventually mpc
  mpc -q -w update
  songs in_mpd
  mpc -q add song.flac
  mpc -q play
  eventually playing_mpd
  with_new_song in_mpd 'new song.mp3'
  echo 'scans, plays, finds a new song'
}
