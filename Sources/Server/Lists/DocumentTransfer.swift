import Base
import Fetching
import Glibc
import Manifest
import Reading
import Storing

/// One document on its way: the request, its answer, and the request after that, if the first tells too little.
final class DocumentTransfer {
  /// The most bytes of a list.
  private static let most: Int64 = 1 << 30
  /// The most bytes of a listing.
  private static let mostOfFolder: Int64 = 64 << 20

  let ask: DocumentAsk
  var began = Instant.now
  /// When bytes came last.
  var heard = Instant.now
  /// Why it is given up.
  var failure: String?

  private let documents: RememberedDocuments
  private let known: DocumentHead?
  private var question: DirectoryQuestion
  private var writer: DocumentWriter?
  private var reader: DirectoryReader?
  private var fault: DirectoryFault?
  private var names = 0
  private var bytes: Int64 = 0
  private var isSame = false
  /// Why the first request was refused: that says more than why the other one was.
  private var refusal: String?
  private var asksAgain = false

  init(_ ask: DocumentAsk, _ documents: RememberedDocuments) {
    self.ask = ask
    self.documents = documents
    // What cannot be read is asked for anew.
    known = (try? documents.open(ask.source.url))?.head
    // What listed a folder lists those in it, too.
    let method = known?.method ?? documents.head(of: ServedFolders.parent(of: ask.source.url))?.method
    question = DirectoryQuestion(ask.isFolder && method == "PROPFIND" ? .propfind : .get)
  }

  /// Its URL, for messages.
  var shown: String { Log.redacted(url: ask.source.url) }

  func request(_ id: TransferID) -> TransferRequest {
    var request = TransferRequest(id: id, url: ask.source.url, range: nil)
    (request.headers, request.userAgent, request.referer) = (
      ask.source.headers, ask.source.userAgent, ask.source.referer
    )
    var document = DocumentRequest()
    if ask.isFolder {
      document.method = question.request.method
      document.body = question.request.body
      document.headers = question.request.headers.map { HTTPHeader(name: $0.name, value: $0.value) }
    }
    if let known, known.method == document.method {
      if let etag = known.etag {
        document.headers.append(HTTPHeader(name: "If-None-Match", value: etag))
      } else if let date = known.lastModified.flatMap({ HTTPDate.format($0) }) {
        document.headers.append(HTTPHeader(name: "If-Modified-Since", value: date))
      }
    }
    request.document = document
    return request
  }

  // MARK: What comes

  /// False: the body is not wanted.
  func responded(_ head: ResponseHead) -> Bool {
    (writer, reader, fault, names, bytes, asksAgain) = (nil, nil, nil, 0, 0, false)
    if head.status == 304 {
      isSame = known != nil
      return true
    }
    var isPage = ask.isFolder
    if ask.isFolder {
      switch question.take(.answered(.init(status: head.status, speaksDAV: head.speaksDAV))) {
      case .ask:
        asksAgain = true
        return false
      case .read: break
      case .finished, .failed: return refuse("\(shown): the server answers with HTTP \(head.status)")
      }
    } else if head.mediaType == "text/html" || head.mediaType == "application/xhtml+xml" {
      isPage = true
    }
    if isPage, !ask.source.isAnswered(by: head.url) {
      return refuse("\(shown): the server leads to another host, \(Log.redacted(url: head.url)): list that URL itself")
    }
    var document = DocumentHead(
      url: ask.source.url, finalURL: head.url, kind: isPage ? .folder : .list, fetched: Int64(time(nil)))
    document.method = ask.isFolder ? question.request.method : "GET"
    document.etag = head.validators.etag.map { (head.validators.etagIsWeak ? "W/" : "") + $0 }
    // One that could not be sent, or not be kept, is none.
    if let etag = document.etag, etag.utf8.count > 1024 || !etag.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) {
      document.etag = nil
    }
    document.lastModified = head.validators.lastModified
    document.mediaType = head.mediaType
    do {
      writer = try documents.begin(document)
      if isPage { reader = try DirectoryReader(url: head.url, mediaType: head.mediaType, depth: ask.source.depth) }
    } catch let error as DirectoryFault {
      fault = error
      if ask.isFolder { return false }
    } catch let error as StoreError {
      return refuse(error.message)
    } catch {
      return refuse("\(shown): \(error)")
    }
    return true
  }

  func received(_ piece: UnsafeRawBufferPointer) -> Bool {
    bytes += Int64(piece.count)
    let most = ask.isFolder ? Self.mostOfFolder : Self.most
    if bytes > most { return refuse("\(shown): it has more than \(most >> 20) MiB") }
    do throws(StoreError) { try writer?.write(piece) } catch { return refuse(error.message) }
    guard fault == nil, let reader else { return true }
    do throws(DirectoryFault) {
      try reader.read(piece)
      names += reader.takeEntries().count
    } catch {
      fault = error
    }
    return fault == nil || !ask.isFolder
  }

  private func refuse(_ message: String) -> Bool {
    failure = message
    return false
  }

  /// nil: it is to be asked for again.
  func ended(_ end: TransferEnd) -> DocumentAsk.Answer? {
    defer { writer = nil }
    if let failure { return .failed(failure) }
    if asksAgain { return nil }
    switch end {
    case .finished: return isSame ? .same : judged()
    case .cancelled: return fault == nil ? .ended : judged()
    case .failed(let failure):
      guard ask.isFolder, let status = failure.status, writer == nil else { return .failed(failure.message) }
      switch question.take(.answered(.init(status: status))) {
      case .ask:
        refusal = failure.message
        return nil
      // A page, or one that asks for a password, came before.
      case .failed(.unreadable(let fault)): return .failed("\(shown): \(fault)")
      case .failed, .read, .finished: return .failed(refusal ?? failure.message)
      }
    }
  }

  // MARK: What came

  private func judged() -> DocumentAsk.Answer? {
    guard let writer else { return .failed("\(shown): the server sent no text") }
    if let reader, fault == nil {
      do throws(DirectoryFault) {
        try reader.finish()
        names += reader.takeEntries().count
      } catch {
        fault = error
      }
    }
    if ask.isFolder {
      switch question.take(fault.map { .unreadable($0) } ?? .listed) {
      case .ask: return nil
      case .failed(.unreadable(let fault)): return .failed("\(shown): \(fault)")
      case .failed, .read: return .failed("\(shown): the server does not list this folder")
      case .finished: break
      }
      return place(writer)
    }
    if reader != nil, fault == nil { return place(writer) }
    // A page that is no listing may be a list that the server calls a page; an error or a login is none.
    writer.head.kind = .list
    if Self.isPage(writer) { return .failed("\(shown): \(fault.map { "\($0)" } ?? "the server sent a page")") }
    do throws(ManifestError) { names = try Self.names(of: writer, ask) } catch {
      return .failed(fault.map { "\(shown): \($0)" } ?? "\(error)")
    }
    if names == 0 { return .failed("\(shown): the list has no usable line") }
    return place(writer)
  }

  /// Whether the body begins as HTML does.
  private static func isPage(_ writer: DocumentWriter) -> Bool {
    guard let body = writer.body() else { return false }
    var bytes = [UInt8](repeating: 0, count: 512)
    let count = read(body.rawValue, &bytes, bytes.count)
    let text = String(decoding: bytes[..<max(0, count)], as: UTF8.self).lowercased()
    let start = text.drop { $0.isWhitespace || $0 == "\u{FEFF}" }
    return start.hasPrefix("<!doctype html") || start.hasPrefix("<html")
  }

  /// How many entries the list has. Throws where it cannot be read to its end.
  private static func names(of writer: DocumentWriter, _ ask: DocumentAsk) throws(ManifestError) -> Int {
    let name = NamedList(folder: "", place: ask.source.url).formatName
    guard let body = writer.body() else { throw .unreadable(name: name, reason: .io) }
    let base = try ManifestBase(url: ask.base ?? ask.source.withUserinfo(writer.head.finalURL))
    var reader = try ManifestReader(descriptor: body, name: name, base: base, format: ask.format)
    var count = 0
    while let item = try reader.next() { if case .entry = item { count += 1 } }
    return count
  }

  private func place(_ writer: DocumentWriter) -> DocumentAsk.Answer {
    if !ask.isAsked, let known {
      if names == 0, known.names > 0 {
        return .failed("\(shown): the server lists nothing there now; what it listed before stays ('mediafs reload')")
      }
      // What an automatic reload would refuse must not take the place of the last good copy.
      if !ask.isFolder, names * 2 < known.names {
        return .failed(
          "\(shown): the list has \(names) entries now and had \(known.names), and nobody asked to remove so many: it "
            + "stays as it was; if it is right, run 'mediafs reload'")
      }
    }
    do throws(StoreError) { return try writer.place(names: names) ? .new : .same } catch {
      return .failed(error.message)
    }
  }
}
