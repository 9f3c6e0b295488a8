import Manifest

/// Who speaks to the resolvers. Neither call waits.
package protocol LinkResolver: Sendable {
  /// Whether an option defines that resolver: a list may name any.
  func defines(_ name: String) -> Bool
  /// Asks a resolver; false if the ask could not be sent. What it says comes by ``MediaFileSystem/heard(_:)``.
  func ask(_ ask: ResolverAsk, of name: String) -> Bool
  /// Ends the program of a resolver. It is started again for the next ask.
  func end(_ name: String)
}

/// What became of asks.
package enum ResolverNews: Sendable {
  /// The resolver of that name answered.
  case answered(String, ResolverAnswer)
  /// Its program has ended, or was ended, for that reason.
  case ended(String, String)
  /// Nobody starts programs any more, for that reason.
  case gone(String)
}

extension MediaFileSystem {
  /// From now on, entries that name a resolver get their links by `resolver`.
  package func resolve(with resolver: any LinkResolver) { room.resolver.withLock { $0 = resolver } }

  /// Any thread may call it.
  package func heard(_ news: ResolverNews) { room.transfers.post(.resolver(news)) }
}
