import Base
import Glibc

/// Real media, made once a process by the `ffmpeg` command: moving pictures with noise and a sweeping tone, so that
/// every second of it decodes to something else. Any thread may call; who comes second waits for the first.
package enum MediaFactory {
  /// The kinds of file.
  package enum Kind: String, Sendable, CaseIterable {
    /// MP4 whose index (moov) stands first.
    case mp4IndexFirst = "index-first.mp4"
    /// MP4 whose index stands last.
    case mp4IndexLast = "index-last.mp4"
    /// Matroska; its Cues stand last.
    case matroska = "film.mkv"
    /// MP3 with an ID3v1 tag in its last 128 bytes (and an ID3v2 tag in front).
    case mp3 = "song.mp3"
    /// FLAC.
    case flac = "song.flac"
    /// Ogg with Vorbis.
    case ogg = "song.ogg"

    /// Whether it has pictures.
    package var hasVideo: Bool { [.mp4IndexFirst, .mp4IndexLast, .matroska].contains(self) }
  }

  /// How long they play, in seconds.
  package static let seconds = 12

  private static let folder = Lock<TemporaryFolder?>(nil)
  private static let made = Lock<[Kind: String]>([:])
  private static let making = Lock(Set<Kind>())

  /// Whether there is an ffmpeg.
  package static var isInstalled: Bool { Command.exists("ffmpeg") }

  /// The path of a file of that kind: a few MB, in a folder that goes when the process ends. Do not change it. Blocks
  /// the calling thread for some seconds the first time.
  package static func file(_ kind: Kind) throws -> String {
    // One maker a kind; the others look again until it is there or the maker failed.
    while true {
      if let path = made.withLock({ $0[kind] }) { return path }
      if making.withLock({ $0.insert(kind).inserted }) { break }
      sleep(seconds: 0.02)
    }
    defer { making.withLock { _ = $0.remove(kind) } }
    if let path = made.withLock({ $0[kind] }) { return path }
    let path = "\(try sharedFolder().path)/\(kind.rawValue)"
    try Command.succeed(["ffmpeg", "-nostdin", "-v", "error", "-y"] + arguments(kind) + [path], timeout: 120)
    made.withLock { $0[kind] = path }
    return path
  }

  /// The bytes of a file of that kind.
  package static func bytes(_ kind: Kind) throws -> [UInt8] {
    let path = try file(kind)
    guard let bytes = TestSupport.bytes(of: path) else { throw Errno.io }
    return bytes
  }

  private static func sharedFolder() throws -> TemporaryFolder {
    if let made = folder.withLock({ $0 }) { return made }
    let new = try TemporaryFolder(open: true)
    let kept = folder.withLock { folder in
      if folder == nil { folder = new }
      return folder ?? new
    }
    if kept === new { atexit(removeMediaFolder) } else { try new.remove() }
    return kept
  }

  fileprivate static func removeFolder() {
    do { try folder.withLock { $0 }?.remove() } catch { Log.warning("\(error)") }
  }

  private static func arguments(_ kind: Kind) -> [String] {
    let left = "0.3*sin(2*PI*(200+40*t)*t)+0.2*(random(0)-0.5)"
    let right = "0.3*sin(2*PI*(300+30*t)*t)+0.2*(random(1)-0.5)"
    let tone = ["-f", "lavfi", "-i", "aevalsrc=\(left)|\(right):s=44100:d=\(seconds)"]
    let picture = ["-f", "lavfi", "-i", "testsrc2=s=480x270:r=25:d=\(seconds),noise=alls=12:allf=t"]
    let film = [
      "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "2M", "-pix_fmt", "yuv420p", "-g", "50", "-c:a", "aac",
    ]
    let tags = ["-metadata", "title=A tone", "-metadata", "artist=mediafs"]
    switch kind {
    case .mp4IndexFirst: return picture + tone + film + ["-movflags", "+faststart"]
    case .mp4IndexLast: return picture + tone + film
    case .matroska: return picture + tone + film
    case .mp3: return tone + ["-c:a", "libmp3lame", "-b:a", "320k", "-write_id3v1", "1", "-id3v2_version", "3"] + tags
    case .flac: return tone + ["-c:a", "flac"] + tags
    case .ogg: return tone + ["-c:a", "libvorbis", "-q:a", "9"] + tags
    }
  }
}

// A plain function: atexit calls it from C.
private func removeMediaFolder() { MediaFactory.removeFolder() }
