import Base
import Manifest

/// Reads what a store writes: the reason of an error, or a page of a list.
final class StoreXML: XMLStreamClient {
  private(set) var code: String?
  private(set) var message: String?
  private(set) var region: String?
  private(set) var listing = StoreListing()
  /// Whether the document is a page of a list.
  private(set) var isListing = false
  private var open: [String] = []
  private var text: [UInt8] = []
  private var entry = StoreListing.Entry(key: "", size: 0)
  private var isTruncated = false
  private var next: String?

  /// The reason that a body gives for a status; without one, or one that is no XML, all of it is nil.
  static func error(_ bytes: [UInt8]) -> StoreXML {
    let read = StoreXML()
    // A reason that cannot be read is as good as none: the status decides.
    _ = read.parse(bytes)
    return read
  }

  /// A page of a list, with the whole names of the objects. `token`: where it was to begin; nil: where the list does.
  static func listing(_ bytes: [UInt8], from token: String? = nil) -> Result<StoreListing, StoreListingFault> {
    let read = StoreXML()
    if let fault = read.parse(bytes) { return .failure(StoreListingFault(reason: fault)) }
    guard read.isListing else { return .failure(StoreListingFault(reason: "it is XML of another kind")) }
    if read.isTruncated, read.next == nil {
      return .failure(StoreListingFault(reason: "it goes on, and does not say where"))
    }
    // Who follows such a page follows it for ever.
    if read.isTruncated, let token, read.next == token {
      return .failure(StoreListingFault(reason: "it goes on where it began"))
    }
    var listing = read.listing
    listing.continuation = read.isTruncated ? read.next : nil
    return .success(listing)
  }

  /// Why the document cannot be read; nil if it could.
  private func parse(_ bytes: [UInt8]) -> String? {
    let stream = XMLStream(client: self)
    // The array's bytes stay where they are during the calls; libxml2 copies what it keeps.
    let fault =
      bytes.withUnsafeBytes { stream.feed($0) }
      ?? stream.feed(UnsafeRawBufferPointer(start: nil, count: 0), isEnd: true)
    return fault.map { "line \($0.line): \($0.reason)" }
  }

  func begin(_ element: XMLElement) {
    if open.isEmpty { isListing = element.name == "ListBucketResult" }
    if element.name == "Contents" { entry = StoreListing.Entry(key: "", size: 0) }
    open.append(element.name)
    text.removeAll(keepingCapacity: true)
  }

  func text(_ bytes: UnsafeBufferPointer<UInt8>) {
    if text.count + bytes.count <= 16 << 10 { text.append(contentsOf: bytes) }
  }

  func end() {
    guard let name = open.popLast() else { return }
    let value = String(decoding: text, as: UTF8.self)
    text.removeAll(keepingCapacity: true)
    switch (open.last, name) {
    case ("Error", "Code"): code = value
    case ("Error", "Message"): message = value
    case ("Error", "Region"): region = value
    case ("Contents", "Key"): entry.key = value
    case ("Contents", "Size"): entry.size = Int64(value) ?? 0
    case ("Contents", "ETag"): entry.etag = value
    case ("Contents", "LastModified"): entry.modified = StoreDay.seconds(value)
    case ("ListBucketResult", "Contents"): listing.entries.append(entry)
    case ("CommonPrefixes", "Prefix"): listing.folders.append(value)
    case ("ListBucketResult", "IsTruncated"): isTruncated = value == "true"
    case ("ListBucketResult", "NextContinuationToken"): next = value
    default: break
    }
  }
}

/// Why a page of a list cannot be used.
struct StoreListingFault: Error {
  var reason: String
}
