import Base
import CCurl
import Glibc

/// libcurl's multi handle: every connection, and the handles of transfers in flight. The loop's thread alone uses it.
final class MultiHandle {
  /// Valid as long as this object lives.
  let raw: UnsafeMutableRawPointer
  /// Held so that they outlive the connections.
  private let sessions: TLSSessions

  init(_ setup: HandleSetup) throws(FetchError) {
    guard let raw = curl_multi_init() else { throw .library("out of memory") }
    self.raw = raw
    sessions = setup.sessions
    // By default libcurl keeps four times the handles in use. It would close connections just when transfers end.
    _ = ccurl_multi_set_long(raw, CURLMOPT_MAXCONNECTS, max(1, setup.options.keptConnections))
    _ = ccurl_multi_set_long(raw, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
  }

  /// Closes every connection. No handle may be attached.
  deinit { curl_multi_cleanup(raw) }

  /// Moves every transfer as far as it goes now; libcurl calls the callbacks.
  func perform() {
    var running: Int32 = 0
    let code = curl_multi_perform(raw, &running)
    if code != CURLM_OK { Log.error("libcurl: \(String(cString: curl_multi_strerror(code)))") }
  }

  /// The next transfer that libcurl has finished, and its result.
  func nextDone() -> (slot: TransferSlot, code: CURLcode)? {
    var left: Int32 = 0
    while let message = curl_multi_info_read(raw, &left) {
      // Both are read before the slot is detached, which frees the message.
      let code = message.pointee.data.result
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle,
        let slot = TransferSlot.of(easy: easy)
      else { continue }
      return (slot, code)
    }
    return nil
  }

  /// Waits for a socket, a timer of libcurl's or the end of the time. Returns whether `descriptor` is readable.
  func wait(milliseconds: Int32, or descriptor: Int32) -> Bool {
    var extra = curl_waitfd(fd: descriptor, events: Int16(CURL_WAIT_POLLIN), revents: 0)
    let code = curl_multi_poll(raw, &extra, 1, milliseconds, nil)
    if code != CURLM_OK {
      Log.error("libcurl: \(String(cString: curl_multi_strerror(code)))")
      usleep(100_000)  // most likely out of memory: the loop must not spin on it
    }
    return extra.revents != 0
  }
}
