/// Metalink 4 (RFC 5854): mirrors in the order of their priority, sizes and digests.
struct MetalinkFormat: XMLListFormat {
  private static let space = "urn:ietf:params:xml:ns:metalink"

  private var file: ListedFile?
  private var urls: [(priority: Int, url: String)] = []
  private var digests: [String: String] = [:]
  private var count = 0

  static let texts: Set<String> = ["size", "hash", "url"]

  static func recognizes(root: String) -> Bool { root == "metalink" }

  mutating func begin(_ element: XMLElement, in parents: [XMLElement], _ list: inout XMLListOutput) {
    if parents.isEmpty, element.space != Self.space {
      list.fault = (element.line, "it is not Metalink 4 (RFC 5854), whose namespace is \(Self.space)")
    }
    guard element.name == "file", parents.count == 1 else { return }
    count += 1
    var begun = ListedFile(line: element.line, place: "file \(count)")
    begun.path = element.attributes["name"]
    file = begun
    urls = []
    digests = [:]
  }

  mutating func end(_ element: XMLElement, text: String, in parents: [XMLElement], _ list: inout XMLListOutput) {
    if element.name == "file", parents.count == 1, var ended = file.take() {
      if urls.isEmpty { return list.output.leaveOut(ended.line, "files without a URL that HTTP can fetch") }
      // The sort is stable: mirrors of one priority keep their order.
      ended.urls = urls.sorted { $0.priority < $1.priority }.map(\.url)
      ended.checksum = ListedFile.strongest(digests)
      return list.files.append(ended)
    }
    guard parents.count == 2, parents.last?.name == "file", !text.isEmpty else { return }
    switch element.name {
    case "size": file?.facts.size = Int64(text).flatMap { $0 >= 0 ? $0 : nil }
    // A digest of the whole file; those of its pieces are one level deeper.
    case "hash": if digests.count < 16, let type = element.attributes["type"] { digests[type.lowercased()] = text }
    case "url":
      // Others may be FTP or rsync mirrors, which are no mistake.
      let isHTTP = ["http://", "https://"].contains { text.lowercased().hasPrefix($0) }
      let priority = element.attributes["priority"].flatMap { Int($0) } ?? .max
      if isHTTP, urls.count < ListLimits.mirrors { urls.append((priority, text)) }
    default: break
    }
  }
}
