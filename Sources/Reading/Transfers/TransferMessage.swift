import Base

/// What other threads ask of the transfer thread.
enum TransferMessage: Sendable {
  /// Somebody waits, or what is stored has changed.
  case changed(Content)
  /// A file was opened: a failed one is tried again, a policy may begin to fetch.
  case opened(Content)
  /// A user wants it whole. It is counted as open until the transfer thread has taken this message.
  case fetch(Content)
  /// Its size will be asked for soon, as one of many.
  case lookAhead([Content])
  /// It was played before this mount: go on.
  case resume(Content)
  /// Remove its bytes, its copy too: all transfers end and nothing is written until `thaw`. `then` runs on the keeper.
  case clear(Content, then: @Sendable () -> Void)
  /// Remove its bytes if nobody has a use for them at the moment.
  case evict(Content)
  /// Its bytes were removed, or could not be: it can be fetched again.
  case thaw(Content)
  /// Its inode cannot be opened any more: give it another one, and answer the open, which is counted, with ESTALE.
  case renew(Content, Inode, Ticket)
  /// It is verified and in the library.
  case completed(Content)
  /// It is whole, but not what it should be, or it cannot be placed.
  case rejected(Content, message: String, isWrong: Bool)
  /// Its disk lost what was not synced: that is missing again. `lost`: what was read of it may have been zeros. Nothing
  /// is stored of it until `pausedUntil`.
  case syncFailed(Content, message: String, lost: ByteRange?, pausedUntil: Instant)
  /// Of what was asked for or played before, everything up to this place was looked at; nil: all of it.
  case resumedUntil(Resuming.Place?)
  /// Drop every connection and ask anew: the network changed.
  case reconnect
}
