import Base
import Fetching
import Glibc

/// Why a command cannot go on with a fleet's bucket: what failed, and what to do.
package struct FleetCareError: Error, Equatable, CustomStringConvertible {
  package var description: String
}

/// A fleet's bucket, as commands see it: they ask one thing after the other, and wait. Some threads may do so at once.
package final class FleetBucket: Sendable {
  /// How often a request goes to a store that is busy or silent.
  private static let attempts = 5
  private static let timeout: Double = 60
  /// How many requests run beside each other where that helps.
  static let width = 8

  let calls: StoreCalls
  let key: FleetKey
  package let format: FleetFormat
  /// The time of the store's clock when it was opened, in seconds since 1970.
  package let time: Int64

  /// Reads what fixes the bucket's layout. A bucket of another version or another fleet is refused, before anything is
  /// asked for but this.
  ///
  /// - Parameter time: the present by the store's clock; nil asks it.
  package init(_ calls: StoreCalls, key: FleetKey, at time: Int64? = nil) throws(FleetCareError) {
    (self.calls, self.key) = (calls, key)
    let place = calls.location.description
    guard case .found(let object) = try Self.ask(calls, .get(StoreCalls.anyID, ObjectName.format.text, timeout: 20))
    else {
      throw FleetCareError(
        description: "\(place) has no fleet: no mount has shared there so far, or with another bucket or prefix")
    }
    do throws(ObjectRefusal) { format = try FleetFormat(object.body, key: key) } catch {
      throw FleetCareError(
        description: "\(place): the object \(ObjectName.format.text) is not for this program: \(error). "
          + "Nothing was changed")
    }
    self.time = time ?? object.date ?? Int64(Glibc.time(nil))
  }

  package var place: String { calls.location.description }

  // MARK: Single requests

  /// What came of a request: found, written, deleted, listed, absent, a conflict, or rotten. All else is an error, once
  /// the store had its chances.
  ///
  /// - Parameter receiver: makes what takes the bytes of a body that comes in pieces, for each attempt anew.
  func ask(_ request: StoreRequest, receiver: (() -> Receiver)? = nil) throws(FleetCareError) -> StoreOutcome {
    try Self.ask(calls, request, receiver: receiver)
  }

  typealias Receiver = @Sendable (UnsafeRawBufferPointer, StoredObject) -> Bool

  private static func ask(
    _ calls: StoreCalls, _ request: StoreRequest, receiver: (() -> Receiver)? = nil
  ) throws(FleetCareError) -> StoreOutcome {
    var last = ""
    for attempt in 0..<attempts {
      var pause = 0.25 * Double(1 << attempt)
      let outcome = calls.outcome(request, received: receiver?())
      switch outcome {
      case .busy(let seconds, let reason):
        last = reason
        pause = min(max(pause, seconds ?? 0), 30)
      case .broken(let reason): last = reason
      case .timedOut: last = "\(calls.location.description): the store does not answer"
      case .refused(let reason), .full(let reason): throw FleetCareError(description: reason)
      case .cancelled: throw FleetCareError(description: "\(calls.location.description): the command was ended")
      default: return outcome
      }
      if attempt + 1 < attempts { usleep(UInt32(pause * 1e6)) }
    }
    throw FleetCareError(description: last)
  }

  /// The object, or nil when there is none, or when its bytes are not those that were stored.
  func object(_ name: ObjectName) throws(FleetCareError) -> StoredObject? {
    let outcome = try ask(.get(StoreCalls.anyID, name.text, timeout: Self.timeout))
    return if case .found(let object) = outcome { object } else { nil }
  }

  func exists(_ name: ObjectName) throws(FleetCareError) -> Bool {
    if case .found = try ask(.head(StoreCalls.anyID, name.text, timeout: Self.timeout)) { true } else { false }
  }

  /// Deletes the object, if it has that ETag. False: it is another one by now.
  @discardableResult
  func delete(_ key: String, ifMatch etag: String? = nil) throws(FleetCareError) -> Bool {
    try ask(.delete(StoreCalls.anyID, key, ifMatch: etag, timeout: Self.timeout)) != .conflict
  }

  // MARK: Many

  /// One page after the other of all objects whose keys begin so, in the keys' order.
  func pages(
    _ prefix: String, isFlat: Bool = false, _ body: (StoreListing) throws(FleetCareError) -> Void
  ) throws(FleetCareError) {
    var token: String?
    repeat {
      let page = try page(prefix, from: token, isFlat: isFlat)
      try body(page)
      token = page.continuation
    } while token != nil
  }

  func page(_ prefix: String, from token: String?, isFlat: Bool) throws(FleetCareError) -> StoreListing {
    let query = StoreListing.Query(continuation: token, isFlat: isFlat)
    guard case .listed(let page) = try ask(.list(StoreCalls.anyID, prefix, query, timeout: Self.timeout)) else {
      throw FleetCareError(description: "\(place): the store does not list what it has")
    }
    return page
  }

  /// Does something with each item, of some at once. After the first error nothing new begins, and it is thrown.
  func each<Item: Sendable>(
    _ items: [Item], _ body: @escaping @Sendable (Item) throws(FleetCareError) -> Void
  ) throws(FleetCareError) {
    let next = Lock((index: 0, failure: FleetCareError?.none))
    let threads = (0..<min(Self.width, items.count)).map { _ in
      OwnedThread(name: "share-care") {
        while true {
          let item = next.withLock { next -> Item? in
            guard next.failure == nil, next.index < items.count else { return nil }
            defer { next.index += 1 }
            return items[next.index]
          }
          guard let item else { return }
          do throws(FleetCareError) { try body(item) } catch {
            next.withLock { if $0.failure == nil { $0.failure = error } }
          }
        }
      }
    }
    for thread in threads { thread.join() }
    if let failure = next.withLock({ $0.failure }) { throw failure }
  }
}

/// Where a command finds a fleet's bucket. The secrets are in the environment and in files, as for a mount.
package struct FleetPlace: Sendable {
  /// `s3://bucket/prefix`.
  package var share: String
  package var endpoint: String?
  package var region: String?
  package var keyFile: String?
  package var certificateFile: String?

  package init(_ share: String) { self.share = share }

  /// Opens the bucket, and lends it.
  package func withBucket<Result>(
    _ environment: [String: String], _ body: (FleetBucket) throws(FleetCareError) -> Result
  ) throws(FleetCareError) -> Result {
    let calls: StoreCalls
    let key: FleetKey
    do throws(StoreSetupError) {
      key = try FleetKey.find(file: keyFile, environment)
      let setup = try StoreSetup(share: share, endpoint: endpoint, region: region, environment: environment)
      var options = TransferOptions()
      options.certificateFile = certificateFile
      do throws(FetchError) { calls = try StoreCalls(setup, options: options) } catch {
        throw StoreSetupError(description: "cannot ask \(share): \(error)")
      }
    } catch {
      throw FleetCareError(description: error.description)
    }
    defer { calls.stop() }
    return try body(try FleetBucket(calls, key: key))
  }

  /// The environment variables that count.
  package static let variables = StoreAccount.variables + [FleetKey.variable]
}
