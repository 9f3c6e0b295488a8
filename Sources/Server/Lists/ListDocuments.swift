import Base
import Fetching
import Manifest
import Storing

/// What somebody wants of a server: a list, or the listing of a folder.
struct DocumentAsk: Sendable {
  /// What became of it.
  enum Answer: Sendable, Equatable {
    /// What is remembered is what the server has.
    case same
    /// Another one is remembered now.
    case new
    /// What is remembered stays, if there is anything. The message holds no secret.
    case failed(String)
    /// The mount ends.
    case ended
  }

  var source: ServerFolder
  /// Whether it is a folder; a list may turn out to be one.
  var isFolder: Bool
  /// The format of the list, and what its relative URLs are relative to, if the user says that.
  var format: ListFormat?
  var base: String?
  /// Whether a user asked: then a folder without names takes the place of one with names.
  var isAsked = false
  /// Scheme, host and port of its URL.
  var host: Substring { source.url[..<(source.url.utf8.dropFirst(8).firstIndex(of: 0x2F) ?? source.url.endIndex)] }
  /// Whether a program waits for it: it goes before the others.
  var isWanted = false
  /// Called on the documents' thread, once.
  var done: @Sendable (Answer) -> Void
  /// Called after it: of those who asked for the same meanwhile.
  var others: [@Sendable (Answer) -> Void] = []

  func answer(_ answer: Answer) {
    done(answer)
    for other in others { other(answer) }
  }
}

/// Gets lists and listings, and remembers them. Its thread, with a loop of its own, begins with the first request: a
/// mount whose list names no server's folder has none.
final class ListDocuments: Sendable {
  let remembered: RememberedDocuments
  private let options: TransferOptions
  private let timeout: Double
  private let loop = Lock<(loop: TransferLoop, asks: Mailbox<DocumentMessage>)?>(nil)
  private let isEnding = Lock(false)
  /// Called in each turn of the thread: ends waits, and returns in how many seconds it is to be called again.
  private let expire = Lock<(@Sendable () -> Double?)?>(nil)

  init(_ remembered: RememberedDocuments, options: TransferOptions, timeout: Double) {
    (self.remembered, self.options, self.timeout) = (remembered, options, timeout)
  }

  /// Asks a server. From any thread; it waits for nothing.
  func ask(_ ask: DocumentAsk) {
    if isEnding.withLock({ $0 }) { return ask.done(.ended) }
    do throws(FetchError) { try start().post(.ask(ask)) } catch { ask.done(.failed("\(error)")) }
  }

  /// Has the thread end waits in time, which the list's disk must not hold up. `expire`: see ``ServedFolders``.
  func endWaits(by expire: @escaping @Sendable () -> Double?) { self.expire.withLock { $0 = expire } }

  /// A program waits for what was asked for already.
  func prefer(_ url: String) { loop.withLock { $0 }?.asks.post(.prefer(url)) }

  private func start() throws(FetchError) -> Mailbox<DocumentMessage> {
    if let (_, asks) = loop.withLock({ $0 }) { return asks }
    let new = try TransferLoop(options: options)
    let asks = Mailbox<DocumentMessage>(wake: new.waking)
    let expire = expire.withLock { $0 }
    // First: nobody may post to a loop that the system refuses its thread. One that comes second ends with its thread.
    try new.run(name: "documents") { [remembered, timeout] commands in
      DocumentClient(commands, asks, remembered, timeout: timeout, expire: expire ?? { nil })
    }
    return loop.withLock { current in
      if let current { return current.asks }
      current = (new, asks)
      return asks
    }
  }

  /// Ends the thread: what it asks for at the time is given up.
  func stop() {
    isEnding.withLock { $0 = true }
    loop.withLock { $0 }?.loop.stop()
  }
}

/// What the thread is told.
enum DocumentMessage: Sendable {
  case ask(DocumentAsk)
  /// This URL goes before the others.
  case prefer(String)
}
