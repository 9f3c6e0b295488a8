import Base
import Fetching
import Storing

/// The thread of ``ListDocuments``: a few requests at once, each with an end.
final class DocumentClient: TransferClient {
  /// How many requests are under way at once, in all and of one host: a server's folders are no reason to press it, and
  /// one that is silent holds up no other.
  private static let (most, mostOfHost) = (16, 2)
  /// After how many times the timeout a document is given up that comes byte by byte.
  private static let patience = 10.0

  private let commands: TransferCommands
  private let asks: Mailbox<DocumentMessage>
  private let remembered: RememberedDocuments
  private let timeout: Double
  private let expire: @Sendable () -> Double?
  private var waiting: [DocumentAsk] = []
  private var running: [TransferID: DocumentTransfer] = [:]
  private var lastID: UInt64 = 0

  init(
    _ commands: TransferCommands, _ asks: Mailbox<DocumentMessage>, _ remembered: RememberedDocuments, timeout: Double,
    expire: @escaping @Sendable () -> Double?
  ) {
    (self.commands, self.asks, self.remembered, self.timeout) = (commands, asks, remembered, timeout)
    self.expire = expire
  }

  deinit {
    hear()
    for ask in waiting { ask.answer(.ended) }
  }

  func turn(now: Instant) -> Instant {
    hear()
    while running.count < Self.most, let index = waiting.firstIndex(where: mayStart) {
      start(DocumentTransfer(waiting.remove(at: index), remembered), now)
    }
    var next = expire().map { Instant.now.adding(seconds: $0) } ?? .never
    for (id, transfer) in running {
      let deadline = min(
        transfer.heard.adding(seconds: timeout), transfer.began.adding(seconds: Self.patience * timeout))
      if deadline > now {
        next = min(next, deadline)
      } else if transfer.failure == nil {
        transfer.failure = "\(transfer.shown): the server sent nothing, or too little, for \(Int(timeout)) s"
        commands.cancel(id)
      }
    }
    return next
  }

  private func hear() {
    for message in asks.takeAll() {
      switch message {
      case .ask(let ask):
        // Reloads may come faster than a server answers. Only one that has not begun says what it has by now.
        if ask.isAsked, let index = waiting.firstIndex(where: { $0.isAsked && $0.source == ask.source }) {
          waiting[index].others.append(ask.done)
        } else if ask.isWanted {
          waiting.insert(ask, at: 0)
        } else {
          waiting.append(ask)
        }
      case .prefer(let url):
        if let index = waiting.firstIndex(where: { $0.source.url == url }) {
          waiting.insert(waiting.remove(at: index), at: 0)
        }
      }
    }
  }

  /// Two answers of one URL would be written to one file.
  private func mayStart(_ ask: DocumentAsk) -> Bool {
    var ofHost = 0
    for transfer in running.values {
      if transfer.ask.source.url == ask.source.url { return false }
      if transfer.ask.host == ask.host { ofHost += 1 }
    }
    return ofHost < Self.mostOfHost
  }

  private func start(_ transfer: DocumentTransfer, _ now: Instant) {
    lastID += 1
    transfer.heard = now
    running[TransferID(lastID)] = transfer
    commands.start(transfer.request(TransferID(lastID)))
  }

  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool {
    running[id]?.heard = .now
    return running[id]?.responded(head) ?? false
  }

  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
    running[id]?.heard = .now
    return running[id]?.received(bytes) ?? false
  }

  func transfer(_ id: TransferID, ended end: TransferEnd) {
    guard let transfer = running.removeValue(forKey: id) else { return }
    let before = Instant.now
    let answer = transfer.ended(end)
    // Nobody heard the others while a list of megabytes was judged.
    let pause = Instant.now.seconds(since: before)
    for other in running.values {
      (other.heard, other.began) = (other.heard.adding(seconds: pause), other.began.adding(seconds: pause))
    }
    if let answer { transfer.ask.answer(answer) } else { start(transfer, .now) }
  }
}
