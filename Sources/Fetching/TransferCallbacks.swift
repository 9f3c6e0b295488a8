import CCurl
import Glibc

// The callbacks of libcurl. The context pointer of each is a retained `TransferSlot`: only `attach` retains it and only
// `detach` releases it. In between, libcurl's multi handle holds the easy handle. The callbacks are plain functions: a
// closure formed in isolated code would trap on the loop's thread.

extension TransferSlot {
  /// Adds the prepared handle to `multi`, which calls the callbacks from now on.
  func attach(to multi: UnsafeMutableRawPointer) throws(CurlError) {
    precondition(!isAttached, "a transfer is attached once")
    let box = Unmanaged.passRetained(self)
    do throws(CurlError) {
      try easy.setCallbacks(context: box.toOpaque())
      guard curl_multi_add_handle(multi, easy.raw) == CURLM_OK else { throw CurlError(code: CURLE_OUT_OF_MEMORY) }
    } catch {
      box.release()
      throw error
    }
    isAttached = true
  }

  /// Removes the handle: no callback comes after this. Must not be called within one. `code` is libcurl's result, nil
  /// if it had not finished.
  func detach(from multi: UnsafeMutableRawPointer, _ code: CURLcode?) {
    guard isAttached else { return }
    isSpent = code != CURLE_OK
    curl_multi_remove_handle(multi, easy.raw)
    isAttached = false
    Unmanaged.passUnretained(self).release()  // the retain of `attach`
  }

  /// The slot that an attached handle belongs to.
  static func of(easy: UnsafeMutableRawPointer) -> TransferSlot? {
    var context: UnsafeMutableRawPointer?
    guard ccurl_get_pointer(easy, CURLINFO_PRIVATE, &context) == CURLE_OK, let context else { return nil }
    return slot(context)
  }
}

private func slot(_ context: UnsafeMutableRawPointer) -> TransferSlot {
  Unmanaged<TransferSlot>.fromOpaque(context).takeUnretainedValue()
}

/// CURLOPT_HEADERFUNCTION: one line of a head or trailer. To return another count than the line's ends the transfer.
func receiveHeaderLine(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let context else { return 0 }
  return slot(context).receive(headerLine: UnsafeRawBufferPointer(start: bytes, count: size * count)) ? size * count : 0
}

/// CURLOPT_WRITEFUNCTION: the next bytes of a body, in libcurl's buffer. It never pauses (CURL_WRITEFUNC_PAUSE).
func receiveBody(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let context else { return 0 }
  let length = size * count
  if slot(context).receive(body: UnsafeRawBufferPointer(start: bytes, count: length)) { return length }
  return length == 0 ? 1 : 0  // any number but the length ends the transfer
}

/// CURLOPT_OPENSOCKETFUNCTION: a socket for a new connection. It is close-on-exec, which libcurl 7.88's own are not.
func openSocket(
  _ context: UnsafeMutableRawPointer?, _ purpose: curlsocktype, _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
  guard let context, let address else { return -1 }
  return slot(context).openSocket(to: address)
}

/// CURLOPT_SOCKOPTFUNCTION: that socket, before libcurl connects it.
func prepareSocket(
  _ context: UnsafeMutableRawPointer?, _ socket: curl_socket_t, _ purpose: curlsocktype
) -> Int32 {
  guard let context else { return Int32(CURL_SOCKOPT_OK) }
  return slot(context).isConnected(socket) ? Int32(CURL_SOCKOPT_ALREADY_CONNECTED) : Int32(CURL_SOCKOPT_OK)
}
