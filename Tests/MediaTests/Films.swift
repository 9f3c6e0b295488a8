import Base
import TestSupport
import Testing

@testable import Media

/// A file on the disk, of which a reader of its index gets the stored bytes.
final class Film {
  let path: String
  let size: Int64
  private let file: FileDescriptor
  /// How many bytes were read.
  private(set) var copied: Int64 = 0

  init(_ path: String) throws {
    self.path = path
    file = try FileDescriptor.open(path, 0)
    size = try Int64(file.status().st_size)
  }

  /// The bytes of `stored`; it is an error to read any other.
  func bytes(_ stored: ByteRangeSet) -> StoredBytes {
    StoredBytes(size: size, stored: stored) { [self] buffer, offset in
      let range = ByteRange(at: offset, count: Int64(buffer.count))
      #expect(stored.contains(range), "\(range) is read, and is not stored")
      copied += range.count
      do { return try file.readFully(at: offset, into: buffer) == buffer.count } catch { return false }
    }
  }

  /// The index when the whole file is stored.
  func index() throws -> FilmIndex {
    var reader = FilmReader()
    reader.read(bytes(ByteRangeSet(ByteRange(0, size))))
    return try #require(reader.index, "\(path) has no index")
  }

  /// The packets of all pictures and sound, as ffprobe tells them: when each is shown, and where it ends.
  func packets() throws -> [(time: Double, end: Int64, size: Int64)] {
    let text = try Command.succeed(
      [
        "ffprobe", "-v", "error", "-show_entries", "packet=pts_time,dts_time,size,pos", "-of", "csv=nokey=0:p=0", path,
      ], timeout: 120)
    return text.split(separator: "\n").compactMap { line in
      var values: [Substring: Double] = [:]
      for part in line.split(separator: ",") {
        let pair = part.split(separator: "=")
        if pair.count == 2 { values[pair[0]] = Double(pair[1]) }
      }
      guard let time = values["pts_time"] ?? values["dts_time"], let size = values["size"], let pos = values["pos"]
      else { return nil }
      return (time, Int64(pos + size), Int64(size))
    }
  }
}

/// Media of every kind that has an index, made from the pictures and the sound of ``MediaFactory``.
enum FilmKind: String, CaseIterable, Sendable {
  case first = "first.mp4"
  case last = "last.mp4"
  case fragments = "fragments.mp4"
  case fragmentsWithFirst = "with-first.mp4"
  case segments = "segments.mp4"
  case oneIndexOfSegments = "global.mp4"
  case quickTime = "uncompressed.mov"
  case matroska = "film.mkv"
  case cuesFirst = "cues-first.mkv"
  case web = "film.webm"
  case audio = "song.m4a"

  /// Makes such a file; its path.
  func make(in folder: TemporaryFolder) throws -> String {
    let source = try MediaFactory.file(.mp4IndexFirst)
    let path = folder.file(rawValue)
    try Command.succeed(
      ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", source] + arguments + [path], timeout: 120)
    return path
  }

  private var arguments: [String] {
    let copy = ["-c", "copy"]
    switch self {
    case .first: return copy + ["-movflags", "+faststart"]
    case .last, .matroska: return copy
    case .fragments: return copy + ["-movflags", "frag_keyframe+empty_moov+default_base_moof"]
    case .fragmentsWithFirst: return copy + ["-movflags", "frag_keyframe"]
    case .segments: return copy + ["-movflags", "frag_keyframe+empty_moov+dash"]
    case .oneIndexOfSegments: return copy + ["-movflags", "frag_keyframe+empty_moov+dash+global_sidx"]
    case .quickTime: return ["-c:v", "copy", "-c:a", "pcm_s16le"]
    case .cuesFirst: return copy + ["-cues_to_front", "1"]
    case .web:
      return [
        "-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "1M", "-g", "50", "-c:a", "libopus",
      ]
    case .audio: return ["-vn", "-c:a", "copy"]
    }
  }
}
