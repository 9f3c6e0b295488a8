import FoundationEssentials

/// Reads JSON: nginx's listing, or Caddy's, which a request with `Accept: application/json` gets.
final class DirectoryObjects: DirectoryFormat {
  var folder: DirectoryFolder
  let kind = DirectoryKind.objects
  private var splitter = JSONSplitter()
  private var hasBegun = false
  /// Items, and those of them that are a server's.
  private var count = (all: 0, known: 0)

  private struct Item: Decodable {
    var name: String?
    var url: String?
    var type: String?
    var isFolder: Bool?
    var size: Int64?
    var modified: String?

    private enum Key: String, CodingKey {
      case name, url, type, size
      case isFolder = "is_dir", modified = "mod_time", mtime
    }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: Key.self)
      name = values.lenient(.name)
      url = values.lenient(.url)
      type = values.lenient(.type)
      isFolder = values.lenient(.isFolder)
      size = values.lenient(.size)
      modified = values.lenient(.modified) ?? values.lenient(.mtime)
    }
  }

  init(_ folder: DirectoryFolder) { self.folder = folder }

  func read(_ bytes: UnsafeRawBufferPointer) throws(DirectoryFault) {
    for byte in bytes {
      if !hasBegun, !byte.isBlank, byte != 0x0A {
        if byte != 0x5B { throw .notAListing(reason: "it is JSON of another kind") }
        hasBegun = true
      }
      do throws(JSONSplitter.Fault) { try splitter.read(byte) } catch {
        throw .malformed(line: error.line, reason: error.reason)
      }
    }
    for value in splitter.values { read(value) }
    splitter.values = []
  }

  func finish() throws(DirectoryFault) {
    do throws(JSONSplitter.Fault) { try splitter.finish() } catch { throw .cut }
    if !hasBegun { throw .cut }
    if count.all > 0, count.known == 0 { throw .notAListing(reason: "it is JSON of another kind") }
  }

  private func read(_ value: JSONValue) {
    count.all += 1
    guard let item = try? JSONDecoder().decode(Item.self, from: Data(value.bytes)), let name = item.name,
      let isFolder = item.isFolder ?? (item.type == "directory" ? true : item.type == "file" ? false : nil)
    else { return folder.report(.badItem, value.line) }
    count.known += 1
    let found =
      if let url = item.url {
        folder.entry(url, isFolder: isFolder, line: value.line)
      } else {
        folder.entry(name: name, isFolder: isFolder, line: value.line)
      }
    guard var entry = found else { return }
    if !isFolder { entry.size = item.size.flatMap { $0 >= 0 ? $0 : nil } }
    entry.modified = item.modified.flatMap { ListDate($0)?.seconds }
    entry.isModifiedExact = entry.modified != nil
    folder.entries.append(entry)
  }
}
