import FoundationEssentials

/// What `rclone lsjson --recursive` prints: files below a folder, whose URL the user gives as the base.
struct RcloneFormat: JSONListFormat {
  private struct Item: Decodable {
    var path: String
    var isFolder: Bool
    var size: Int64?
    var modified: String?
    var mediaType: String?
    var hashes: [String: String]?

    private enum Key: String, CodingKey {
      case path = "Path", isFolder = "IsDir", size = "Size", modified = "ModTime", mediaType = "MimeType"
      case hashes = "Hashes"
    }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: Key.self)
      path = try values.decode(String.self, forKey: .path)
      isFolder = values.lenient(.isFolder) ?? false
      size = values.lenient(.size)
      modified = values.lenient(.modified)
      mediaType = values.lenient(.mediaType)
      hashes = values.lenient(.hashes)
    }
  }

  /// The folder's URL.
  private let folder: String

  static func recognizes(_ head: ListHead) -> Bool {
    // Of a folder with nothing in it, rclone prints an empty list.
    head.isEmptyList || head.begins("[") && head.contains("\"Path\":") && head.contains("\"IsDir\":")
  }

  init(_ setup: ListSetup) throws(ManifestError) {
    guard var base = setup.base.url else {
      throw setup.malformed(1, "it has paths and no URLs; give the URL of their folder with --base-url")
    }
    if base.last != 0x2F { base.append(0x2F) }
    folder = String(decoding: base, as: UTF8.self)
  }

  mutating func read(_ value: JSONValue, _ number: Int, _ files: inout [ListedFile], _ output: inout ListOutput) {
    guard let item: Item = value.decoded(number, &output), !item.isFolder else { return }
    var file = ListedFile(line: value.line, place: "item \(number)")
    var escaped: [UInt8] = []
    for byte in item.path.utf8 {
      if byte == 0x2F || ByteSet.unreserved.contains(byte) { escaped.append(byte) } else { escaped.appendEscaped(byte) }
    }
    file.urls = [folder + String(decoding: escaped.drop { $0 == 0x2F }, as: UTF8.self)]
    file.path = item.path
    file.facts.size = item.size.flatMap { $0 >= 0 ? $0 : nil }
    file.facts.date = item.modified.flatMap { ListDate($0)?.seconds }
    file.facts.mediaType = item.mediaType
    file.checksum = ListedFile.strongest(item.hashes ?? [:])
    files.append(file)
  }
}
