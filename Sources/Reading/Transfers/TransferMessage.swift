import Base
import Storing

/// What other threads ask of the transfer thread.
enum TransferMessage: Sendable {
  /// A reader waits, or the stored bytes have changed.
  case changed(Content)
  /// A program opened the file: a failed file is tried again, and the policy may start a background download.
  case opened(Content)
  /// Nobody has the file open any more.
  case closed(Content)
  /// A user wants the whole file. It counts as open until the transfer thread has taken this message.
  case fetch(Content)
  /// A listing will probably ask for the sizes of these files soon.
  case lookAhead([Content])
  /// A program opened a complete file, whose reads the kernel may answer by itself.
  case held(Content)
  /// Something of the file is stored, for the second source. Nobody may have it open.
  case stored(Content)
  /// The keeper has looked up what is stored up to that generation; nil: all of it.
  case storedUntil(Int64?)
  /// The keeper cannot read the catalog behind that generation.
  case storedUnread(after: Int64)
  /// The files that follow a file that is being played. They count as open until the transfer thread has taken this
  /// message.
  case next(of: Content, [Content])
  /// The file was requested by name or played before, and is unfinished: fetch the rest.
  case resume(Content)
  /// The catalog knows that the user does not want the rest of the file any more.
  case cancelled(Content)
  /// The user's rules say something else of the file than before.
  case ruled(Content)
  /// The list says something else of the file than before, or does not have it any more.
  case listed(Content)
  /// A user asks whether an origin still has a version.
  case ask(VersionQuestion)
  /// The user's limits changed.
  case limitsChanged
  /// The user's rules changed: files that are not in memory may have to be fetched.
  case rulesChanged
  /// Remove the file's bytes and its copy, also those of a version that has replaced it meanwhile. All transfers end,
  /// and nothing is written until `thaw`. The keeper runs `then` afterwards.
  case clear(Content, then: @Sendable () -> Void)
  /// Let the keeper evict these blocks of the file, or its copy, if nobody uses it at the moment. `bytes`: what the
  /// keeper expects of it. `endsDownload`: also if its rest is being downloaded, unless a user asked for that by name.
  case evict(Content, ByteRangeSet, bytes: Int64, endsDownload: Bool, isCopy: Bool)
  /// The keeper has removed the bytes, or could not: the file can be fetched again.
  case thaw(Content)
  /// The inode cannot be opened any more. Give the file another one, and answer the counted open with ESTALE.
  case renew(Content, Inode, Ticket)
  /// The finisher has verified the file and placed it in the library.
  case completed(Content, LibraryCopy)
  /// The finisher has all bytes, and there is no room for the copy yet.
  case waitsForRoom(Content)
  /// The finisher has all bytes, but they are wrong (`isWrong`) or the file cannot be placed.
  case rejected(Content, message: String, isWrong: Bool)
  /// The disk lost the file's unsynced bytes: they are missing again. Reads in `lost` may have returned zeros. Nothing
  /// of the file is stored until `pausedUntil`.
  case syncFailed(Content, message: String, lost: ByteRange?, pausedUntil: Instant)
  /// The keeper has resumed the unfinished files up to this place; nil: all of them.
  case resumedUntil(Resuming.Place?)
  /// The keeper cannot look up the unfinished files after this place.
  case resumedUnread(after: Resuming.Place)
  /// Earlier mounts learned this of hosts.
  case hosts([HostNote])
  /// A resolver answered, or ended.
  case resolver(ResolverNews)
  /// The network changed: drop every connection and send the requests again.
  case reconnect
}
