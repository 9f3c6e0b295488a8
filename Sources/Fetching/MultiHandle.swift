import Base
import CCurl
import Glibc

/// libcurl's multi handle: every connection, and the handles whose transfers are under way. On the loop's thread alone.
final class MultiHandle {
  /// Valid as long as this object lives.
  let raw: UnsafeMutableRawPointer
  /// Here so that they outlive the connections.
  private let sessions: TLSSessions

  init(_ setup: HandleSetup) throws(FetchError) {
    guard let raw = curl_multi_init() else { throw .library("out of memory") }
    self.raw = raw
    sessions = setup.sessions
    // The default of the cache, four times the handles in use, would close connections just when transfers end.
    _ = ccurl_multi_set_long(raw, CURLMOPT_MAXCONNECTS, max(1, setup.options.keptConnections))
    _ = ccurl_multi_set_long(raw, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
  }

  /// Closes every connection. No handle may be attached any more.
  deinit { curl_multi_cleanup(raw) }

  /// Moves every transfer as far as it goes now; libcurl calls back.
  func perform() {
    var running: Int32 = 0
    let code = curl_multi_perform(raw, &running)
    if code != CURLM_OK { Log.error("libcurl: \(String(cString: curl_multi_strerror(code)))") }
  }

  /// The next transfer that libcurl is through with, and its verdict.
  func nextDone() -> (slot: TransferSlot, code: CURLcode)? {
    var left: Int32 = 0
    while let message = curl_multi_info_read(raw, &left) {
      // Both are read before the slot is detached: the message dies with that.
      let code = message.pointee.data.result
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle,
        let slot = TransferSlot.of(easy: easy)
      else { continue }
      return (slot, code)
    }
    return nil
  }

  /// Waits for a socket, or a timer of libcurl's, or until the time is over. True: `descriptor` can be read.
  func wait(milliseconds: Int32, or descriptor: Int32) -> Bool {
    var extra = curl_waitfd(fd: descriptor, events: Int16(CURL_WAIT_POLLIN), revents: 0)
    let code = curl_multi_poll(raw, &extra, 1, milliseconds, nil)
    if code != CURLM_OK {
      Log.error("libcurl: \(String(cString: curl_multi_strerror(code)))")
      usleep(100_000)  // out of memory, most likely: the loop must not spin on it
    }
    return extra.revents != 0
  }
}
