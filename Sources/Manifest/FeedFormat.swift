/// RSS 2.0, RSS 1.0 and Atom feeds with enclosures: a folder with the feed's title, and in it a file for each
/// enclosure, named by the item's date and title.
struct FeedFormat: XMLListFormat {
  /// Made safe once: it may be long, and each file shows in it.
  private var title: String?
  private var item: Item?
  private var count = 0
  /// Files that came before the feed's title, which names their folder.
  private var early: [ListedFile] = []
  private var bytesOfEarly = 0

  /// The most bytes of texts of files that wait for the feed's title.
  private static let mostEarly = 4 << 20
  /// The folder of a feed without a title.
  private static let noTitle = "Feed"

  private struct Item {
    var line: Int
    var title: String?
    var date: ListDate?
    var duration: Double?
    /// Whether an enclosure was left out because it is a picture.
    var hasImage = false
    /// Each is a file of its own.
    var enclosures: [Enclosure] = []
  }
  private struct Enclosure {
    var url: String
    var size: Int64?
    var mediaType: String?
  }

  static let texts: Set<String> = ["title", "pubDate", "published", "updated", "date", "duration"]

  static func recognizes(root: String) -> Bool { root == "rss" || root == "RDF" || root == "feed" }

  mutating func begin(_ element: XMLElement, in parents: [XMLElement], _ list: inout XMLListOutput) {
    if (element.name == "item" || element.name == "entry") && item == nil {
      count += 1
      item = Item(line: element.line)
    } else if element.name == "enclosure" {
      append(element.attributes["url"] ?? element.attributes["resource"], "length", element, &list)
    } else if element.name == "link", element.attributes["rel"] == "enclosure" {
      append(element.attributes["href"], "length", element, &list)
    } else if element.name == "content", element.space.hasPrefix("http://search.yahoo.com/mrss") {
      // Media RSS: a medium, where the feed has no enclosure of the same URL.
      append(element.attributes["url"], "fileSize", element, &list)
    }
  }

  private mutating func append(_ url: String?, _ size: String, _ element: XMLElement, _ list: inout XMLListOutput) {
    guard let url, !url.isEmpty, let known = item?.enclosures else { return }
    if known.count == ListLimits.mirrors || known.contains(where: { $0.url.utf8.elementsEqual(url.utf8) }) { return }
    if Self.isImage(url, element) {
      item?.hasImage = true
      return list.output.leaveOut(element.line, "pictures, which feeds show beside their items")
    }
    if element.attributes["type"]?.lowercased() == "application/x-shockwave-flash" {
      return list.output.leaveOut(element.line, "Flash players, which are pages and no files")
    }
    // Many feeds say 0 for a length that they do not know.
    let bytes = element.attributes[size].flatMap { Int64($0) }.flatMap { $0 > 0 ? $0 : nil }
    item?.enclosures.append(Enclosure(url: url, size: bytes, mediaType: element.attributes["type"]))
  }

  /// Whether an enclosure is a picture: by what the feed says of it, else by its URL's extension.
  private static func isImage(_ url: String, _ element: XMLElement) -> Bool {
    if let medium = element.attributes["medium"] { return medium == "image" }
    if let type = element.attributes["type"], !type.isEmpty { return type.lowercased().hasPrefix("image/") }
    let name = url.prefix { $0 != "?" && $0 != "#" }.split(separator: "/").last.map(String.init) ?? ""
    let type = SafeName.fileExtension(name).flatMap { FileType.mediaType(forExtension: $0) }
    return type?.hasPrefix("image/") ?? false
  }

  mutating func end(_ element: XMLElement, text given: String, in parents: [XMLElement], _ list: inout XMLListOutput) {
    let parent = parents.last?.name
    // Atom says so of titles (RFC 4287, section 3.1); RSS says nothing, and means text.
    // The reader gives no text of other elements, many of which have such a type. Atom 0.3 writes it as a media type.
    let isHTML = !given.isEmpty && ["html", "text/html"].contains(element.attributes["type"]?.lowercased())
    let text = isHTML ? Markup.text(of: given) : given
    if parent == "item" || parent == "entry" {
      if !text.isEmpty { take(element, text) }
    } else if element.name == "title", parent == "channel" || parent == "feed" && parents.count == 1, !text.isEmpty {
      let folder = title ?? SafeName.component(text) ?? ""
      title = folder
      letGo(folder, &list)
    } else if element.name == "item" || element.name == "entry", let ended = item.take() {
      finish(ended, &list)
    } else if parents.isEmpty {
      letGo(Self.noTitle, &list)
    }
  }

  /// Hands over the files that waited for the folder's name.
  private mutating func letGo(_ folder: String, _ list: inout XMLListOutput) {
    for index in early.indices { early[index].folder = [folder] }
    list.files += early
    early = []
  }

  private mutating func take(_ element: XMLElement, _ text: String) {
    switch element.name {
    // An element of another namespace (`itunes:title`, `media:title`) counts where the feed has no own.
    case "title": if item?.title == nil || !Self.isForeign(element) { item?.title = text }
    case "pubDate", "published": if let date = ListDate(text) { item?.date = date }
    case "updated", "date": if item?.date == nil { item?.date = ListDate(text) }
    case "duration": item?.duration = Self.seconds(text)
    default: break
    }
  }

  private static func isForeign(_ element: XMLElement) -> Bool {
    element.space.contains("itunes") || element.space.contains("search.yahoo.com")
  }

  /// `5400`, `90:00` or `1:30:00` as seconds.
  private static func seconds(_ text: String) -> Double? {
    let parts = text.split(separator: ":")
    guard (1...3).contains(parts.count) else { return nil }
    var sum = 0.0
    for part in parts {
      guard let number = Double(part), number >= 0 else { return nil }
      sum = sum * 60 + number
    }
    return sum
  }

  private mutating func finish(_ item: Item, _ list: inout XMLListOutput) {
    if item.enclosures.isEmpty {
      if !item.hasImage { list.output.leaveOut(item.line, "items without an enclosure") }
      return
    }
    for enclosure in item.enclosures {
      var file = ListedFile(line: item.line, place: "item \(count)")
      file.urls = [enclosure.url]
      file.folder = [title].compactMap { $0 }
      file.title = [item.date?.day, item.title].compactMap { $0 }.joined(separator: " ")
      if file.title == "" { file.title = nil }
      file.facts.size = enclosure.size
      file.facts.title = item.title
      file.facts.date = item.date?.seconds
      file.facts.duration = item.duration
      file.facts.mediaType = enclosure.mediaType
      if title != nil {
        list.files.append(file)
        continue
      }
      early.append(file)
      bytesOfEarly += enclosure.url.utf8.count + (item.title?.utf8.count ?? 0) + 256
    }
    if title == nil, bytesOfEarly > Self.mostEarly {
      title = Self.noTitle
      list.output.report(
        item.line, .warning,
        "the feed has no title before its items; their folder is \(Self.noTitle), whatever title follows")
      letGo(Self.noTitle, &list)
    }
  }
}
