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
    process > 0 && ProcessNames.name(of: process).map(contains) ?? false
  }
  static func contains(name: String) -> Bool { names.contains(name) }
}
