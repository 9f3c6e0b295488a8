/// What other threads ask of a thread, in the order in which they asked.
package final class Mailbox<Message: Sendable>: Sendable {
  private let messages = Lock<[Message]>([])
  private let wake: @Sendable () -> Void

  /// `wake` is called when the first message comes after the mailbox was emptied. From any thread; it must not block.
  package init(wake: @escaping @Sendable () -> Void) { self.wake = wake }

  /// Hands over a message. From any thread, never blocks.
  package func post(_ message: Message) {
    let isFirst = messages.withLock { messages in
      messages.append(message)
      return messages.count == 1
    }
    if isFirst { wake() }
  }

  /// Takes all messages out. The owner's thread.
  package func takeAll() -> [Message] {
    messages.withLock { messages in
      let taken = messages
      messages.removeAll(keepingCapacity: true)
      return taken
    }
  }

  /// Takes the oldest message out; nil when there is none. The owner's thread.
  package func takeFirst() -> Message? {
    messages.withLock { $0.isEmpty ? nil : $0.removeFirst() }
  }
}
