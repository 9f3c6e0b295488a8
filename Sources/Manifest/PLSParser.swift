import Base

/// Parses PLS playlists: `File1=`, `Title1=`, `Length1=`, in any order.
struct PLSParser: LineParser, ~Copyable {
  /// The most bytes: the tracks are in memory until the end, because their keys may come in any order.
  private static let maximumBytes = 64 << 20
  private static let maximumTracks = 200_000

  private let setup: ListSetup
  private var builder: EntryBuilder
  private var output = ListOutput()
  private var tracks: [Int: Track] = [:]
  /// The numbers of the tracks whose entries were not made yet, the next one last.
  private var left: [Int] = []

  /// What stands of a track: many are in memory together.
  private struct Track {
    var line: Int
    var url: String?
    var title: String?
    var duration: Double?
  }
  private var bytes = 0

  static func recognizes(_ head: ListHead) -> Bool { head.begins("[playlist]") }

  init(_ setup: ListSetup) {
    self.setup = setup
    builder = EntryBuilder(setup)
  }

  mutating func takeItem() -> ManifestItem? {
    while true {
      if let item = output.takeItem() { return item }
      guard let number = left.popLast(), let track = tracks.removeValue(forKey: number) else { return nil }
      add(track, number)
    }
  }

  mutating func read(_ line: Span<UInt8>, number: Int, isTooLong: Bool) throws(ManifestError) {
    bytes += line.count + 1
    if bytes > Self.maximumBytes {
      throw setup.malformed(number, "it has more than \(Self.maximumBytes >> 20) MiB; split it, or use another format")
    }
    let start = number == 1 && line.hasPrefix("\u{FEFF}") ? 3 : 0
    let range = line.trimmedRange(start..<line.count)
    guard !range.isEmpty, line[range.lowerBound] != 0x3B, line[range.lowerBound] != 0x5B else { return }
    if isTooLong {
      let limit = LineReader.maximumLength >> 10
      return output.report(number, .error, "the line is longer than \(limit) KiB and is skipped; give a shorter URL")
    }
    guard let equals = line.firstIndex(of: 0x3D, in: range) else {
      return output.report(number, .warning, "no line of a PLS playlist: it must be Key=value; it is skipped")
    }
    let key = line.text(line.trimmedRange(range.lowerBound..<equals)).lowercased()
    let value = line.text(line.trimmedRange(equals + 1..<range.upperBound))
    let name = key.prefix { !$0.isNumber }
    guard ["file", "title", "length"].contains(name), let track = Int(key.dropFirst(name.count)) else { return }
    if value.isEmpty { return }
    if tracks.count == Self.maximumTracks, tracks[track] == nil {
      throw setup.malformed(number, "it has more than \(Self.maximumTracks) tracks; split it, or use another format")
    }
    var known = tracks[track] ?? Track(line: number)
    switch name {
    case "file":
      if known.url != nil {
        output.report(number, .warning, "File\(track) is given twice; the first one counts")
      } else {
        (known.url, known.line) = (value, number)
      }
    case "title": known.title = value
    default: known.duration = Double(value).flatMap { $0 > 0 ? $0 : nil }
    }
    tracks[track] = known
  }

  mutating func finish() { left = tracks.keys.sorted(by: >) }

  private mutating func add(_ track: Track, _ number: Int) {
    if let url = track.url {
      var file = ListedFile(line: track.line, place: "File\(number)")
      (file.urls, file.title) = ([url], track.title)
      (file.facts.title, file.facts.duration) = (track.title, track.duration)
      builder.add(file, to: &output)
    } else {
      output.leaveOut(track.line, "titles or lengths without a file")
    }
    if left.isEmpty { output.reportLeftOut() }
  }
}
