/// The messages of other threads to one thread, in the order of their posting.
package final class Mailbox<Message: Sendable>: Sendable {
  private let messages = Lock<[Message]>([])
  private let wake: @Sendable () -> Void

  /// `wake` is called when a message arrives in the empty mailbox. Any thread may call it; it must not block.
  package init(wake: @escaping @Sendable () -> Void) { self.wake = wake }

  /// Adds a message. Any thread may call it; it never blocks on the owner.
  package func post(_ message: Message) {
    let isFirst = messages.withLock { messages in
      messages.append(message)
      return messages.count == 1
    }
    if isFirst { wake() }
  }

  /// Removes and returns all messages. Called on the owner's thread.
  package func takeAll() -> [Message] {
    messages.withLock { messages in
      let taken = messages
      messages.removeAll(keepingCapacity: true)
      return taken
    }
  }

  /// Removes and returns the oldest message; nil when there is none. Called on the owner's thread.
  package func takeFirst() -> Message? {
    messages.withLock { $0.isEmpty ? nil : $0.removeFirst() }
  }
}
