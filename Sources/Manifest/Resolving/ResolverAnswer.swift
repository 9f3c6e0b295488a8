import Base
import FoundationEssentials

/// A link that a resolver gave. Secret: nothing of it is told to anybody but its origin.
package struct ResolvedLink: Sendable, Equatable {
  /// The link and its mirrors; never empty.
  package var urls: [String]
  package var headers: [HTTPHeader] = []
  package var userAgent: String?
  package var referer: String?
  /// From when on the link is good, in seconds since 1970.
  package var begin: Int64?
  /// Until when, as the resolver says, or the link.
  package var end: Int64?
  /// What the link leads to, in bytes; nil where the resolver does not know, or says 0.
  package var size: Int64?
  package var checksum: Checksum?

  package init(urls: [String]) { self.urls = urls }

  /// When the first part of the link ends that has not ended by `date`: it is time for another link before that.
  ///
  /// It may be earlier than ``end``, after which nothing is requested. A mirror that has ended leaves the other URLs,
  /// and a token in a header field may be for something else than the file: only the origin's answer shows that the
  /// link is dead. So those ends hold no request back, and count for nothing once they are over.
  package func firstEnd(after date: Int64) -> Int64? {
    let others = urls.dropFirst().compactMap { Expiry.end(of: $0) } + headers.compactMap { Expiry.end(of: $0) }
    return (others.filter { $0 > date } + [end].compactMap { $0 }).min()
  }
}

/// What a resolver answers (docs/RESOLVERS.md): a link, or that it has none.
package struct ResolverAnswer: Sendable, Equatable {
  /// Why there is no link: words without anything of a link.
  package struct Refusal: Error, Equatable {
    package var words: String
    package init(_ words: String) { self.words = words }
  }

  package var key: ResourceKey
  package var link: Result<ResolvedLink, Refusal>

  /// The most bytes of a line.
  package static let longest = 64 << 10
  /// The most links of an answer.
  private static let most = 16

  /// nil for a line that is no answer at all.
  package init?(line: some Sequence<UInt8>) {
    let bytes = Data(line)
    guard bytes.count <= Self.longest, let found = try? JSONDecoder().decode(Line.self, from: bytes),
      let key = found.key.flatMap({ ResourceKey(hex: $0) })
    else { return nil }
    self.key = key
    do throws(Refusal) { link = .success(try Self.link(found)) } catch { link = .failure(error) }
  }

  private static func link(_ line: Line) throws(Refusal) -> ResolvedLink {
    if let words = line.error { throw Refusal(tame(words)) }
    guard let first = line.url else { throw Refusal("its answer has no link") }
    var parser = URLParser()
    var urls: [String] = []
    for url in [first] + line.mirrors.prefix(most) {
      do throws(URLFault) { try parser.parse(Array(url.utf8).span) } catch {
        if urls.isEmpty { throw Refusal("its link cannot be fetched: \(error.message)") }
        continue
      }
      if !urls.contains(parser.string) { urls.append(parser.string) }
    }
    var link = ResolvedLink(urls: urls)
    var options = EntryOptions()
    for (name, value) in line.headers.sorted(by: { $0.key < $1.key }) { set(&options, .header, "\(name): \(value)") }
    if let cookies = line.cookies { set(&options, .header, "Cookie: \(cookies)") }
    if let digest = line.digest { set(&options, .checksum, digest) }
    var entry = ManifestEntry(line: 0, urls: urls, folder: [], name: "", key: ResourceKey(high: 0, low: 0))
    options.apply(to: &entry)
    (link.headers, link.userAgent, link.referer) = (entry.headers, entry.userAgent, entry.referer)
    link.checksum = entry.checksum
    link.size = line.size.flatMap { Int64(exactly: $0) }.flatMap { $0 > 0 ? $0 : nil }
    link.begin = line.begin?.seconds
    link.end = [line.end?.seconds, Expiry.end(of: urls[0])].compactMap { $0 }.min()
    return link
  }

  /// Sets what a line of the list could set too; what that may not say, is left out.
  private static func set(_ options: inout EntryOptions, _ option: EntryOptions.Option, _ value: String) {
    _ = options.read(Array("\(option.rawValue)=\(value)".utf8).span)
  }

  /// A resolver's words for the log: whatever may be of a link is left out.
  static func tame(_ text: String) -> String {
    let plain = String(text.unicodeScalars.prefix(1000).map { $0.properties.isWhitespace ? " " : Character($0) })
    let words = plain.split(separator: " ").prefix(40).map { word -> Substring in isPlain(word) ? word : "…" }
    return words.isEmpty ? "it says nothing" : words.joined(separator: " ")
  }

  /// Whether a word is one of a language, the extension of a file or a number of few digits, as opposed to what a
  /// token, an account or a link may have.
  private static func isPlain(_ word: Substring) -> Bool {
    if word.utf8.count > 24 { return false }
    let parts = word.unicodeScalars.split { ",.:;!'()-".unicodeScalars.contains($0) }
    if parts.count == 1, FileType.mediaType(forExtension: String(parts[0])) != nil { return true }
    let digits = parts.joined().count { $0.properties.numericType != nil }
    let letters = parts.joined().count { $0.properties.isAlphabetic && $0.properties.numericType == nil }
    guard digits + letters == parts.joined().count, digits == 0 || letters == 0 else { return false }
    let capitals = parts.joined().count { $0.properties.isUppercase }
    return parts.allSatisfy { digits == 0 || $0.count <= 5 } && (capitals <= 3 || capitals == letters && letters <= 8)
  }

  private struct Line: Decodable {
    var key, url, error, cookies, digest: String?
    var headers: [String: String]
    var mirrors: [String]
    var size: Double?
    var begin, end: Time?

    private enum Key: String, CodingKey {
      case key, url, error, cookies, digest, headers, mirrors, size, begin = "not_before", end = "expires"
    }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: Key.self)
      key = values.lenient(.key)
      url = values.lenient(.url)
      error = values.lenient(.error)
      cookies = values.lenient(.cookies)
      digest = values.lenient(.digest)
      headers = values.lenient(.headers) ?? [:]
      mirrors = values.lenient(.mirrors) ?? []
      size = values.lenient(.size)
      begin = values.lenient(.begin)
      end = values.lenient(.end)
    }
  }

  /// A time: seconds since 1970, or a text with a date.
  private struct Time: Decodable {
    var seconds: Int64?

    init(from decoder: any Decoder) throws {
      let value = try decoder.singleValueContainer()
      if let number = try? value.decode(Double.self) {
        // 13 digits are milliseconds, as in a text.
        let isMilliseconds = (1e12..<1e13).contains(number)
        seconds = Int64(exactly: (isMilliseconds ? number / 1000 : number).rounded(.down))
      } else {
        seconds = Expiry.time(try value.decode(String.self))
      }
    }
  }
}
