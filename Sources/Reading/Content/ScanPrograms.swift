import Base
import Glibc

/// Programs that look at many files and play none. Their reads never start a background download.
enum ScanPrograms {
  /// Names as the kernel keeps them: /proc/PID/comm, at most 15 bytes.
  private static let names: Set<String> = [
    // probes and indexers
    "ffprobe", "mediainfo", "exiftool", "file", "tracker-extract", "tracker-miner-f", "localsearch", "localsearch-3",
    "baloo_file", "baloo_file_extr", "updatedb", "updatedb.plocate", "updatedb.mlocat", "recollindex", "md5deep",
    // thumbnailers
    "ffmpegthumbnail", "totem-video-thu", "gdk-pixbuf-thum", "tumblerd", "thumbnail.so", "kioslave5", "kioworker",
    "gst-thumbnailer", "evince-thumbnai", "gnome-video-thu",
    // scanners
    "Plex Media Scan", "clamscan", "clamd", "freshclam",
  ]

  /// Whether `process` is one of them; false when it has ended or its name cannot be read.
  static func contains(process: Int32) -> Bool {
    guard process > 0, let name = commandName(of: process) else { return false }
    return names.contains(name)
  }

  /// /proc/PID/comm without its newline.
  private static func commandName(of process: Int32) -> String? {
    guard let file = try? FileDescriptor.open("/proc/\(process)/comm", O_RDONLY) else { return nil }  // it ended
    return withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
      guard let count = try? file.read(at: 0, into: buffer), count > 0 else { return nil }
      return String(decoding: buffer[..<count].prefix { $0 != 10 }, as: UTF8.self)
    }
  }
}
