import Base
import Glibc

/// A real SeaweedFS on loopback: a master, two volume servers, a filer and two gateways that speak S3, in a temporary
/// folder of its own. Any thread may call. ``stop()`` must be called; ``withSeaweed(_:)`` does.
package final class SeaweedStore: Sendable {
  /// The processes, in the order in which they are started.
  package enum Part: String, CaseIterable, Sendable { case master, volume1, volume2, filer, gateway1, gateway2 }

  private let folder: TemporaryFolder
  private let ports: [Part: (http: UInt16, grpc: UInt16)]
  private let processes: Lock<[Part: BackgroundProcess]>

  /// Starts all of it, and waits until both gateways store: the bucket is there then.
  package init() throws {
    guard StorePrograms.weed != nil else { throw StoreFailure(description: StorePrograms.noWeed) }
    folder = try TemporaryFolder()
    var ports: [Part: (http: UInt16, grpc: UInt16)] = [:]
    for part in Part.allCases { ports[part] = (try freePort(), try freePort()) }
    self.ports = ports
    processes = Lock([:])
    try folder.write(Self.identities, to: "s3.json")
    for name in ["m", "v1", "v2", "f"] { try folder.makeFolder(name) }
    for part in Part.allCases { try start(part) }
    var ended: [Part] = []
    let isReady = eventually(timeout: 2 * waitBound, interval: 0.1) {
      ended = processes.withLock { parts in Part.allCases.filter { parts[$0]?.isRunning != true } }
      return !ended.isEmpty
        || [Part.gateway1, .gateway2].allSatisfy { self.ports[$0].map { Self.stores($0.http) } == true }
    }
    guard isReady, ended.isEmpty else {
      let words = (ended.isEmpty ? Part.allCases : ended).map { "\n\($0.rawValue): \(self.words($0))" }.joined()
      stop()
      throw StoreFailure(description: "SeaweedFS does not begin to store\(words)", hasEnded: !ended.isEmpty)
    }
  }

  /// Whether a gateway takes an object; with the first one it makes the bucket.
  private static func stores(_ port: UInt16) -> Bool {
    var request = SignatureJudge.Seen(
      method: "PUT", target: "/\(StoreKeys.bucket)/ready",
      headers: [HTTPHeader(name: "Host", value: "127.0.0.1:\(port)"), HTTPHeader(name: "Content-Length", value: "0")],
      body: [])
    SignatureJudge(secrets: [StoreKeys.key: StoreKeys.secret]).sign(&request, key: StoreKeys.key)
    let head = request.headers.map { "\($0.name): \($0.value)\r\n" }.joined()
    do throws(Errno) {
      let client = try RawClient(port: port)
      try client.send("\(request.method) \(request.target) HTTP/1.1\r\n\(head)\r\n")
      return client.receiveHead(timeout: 5).lines.first?.contains(" 200 ") == true
    } catch {
      return false  // it does not listen yet
    }
  }

  /// `http://127.0.0.1:PORT` of a gateway.
  package func endpoint(_ gateway: Part = .gateway1, host: String = "127.0.0.1") -> String {
    "http://\(host):\(ports[gateway]?.http ?? 0)"
  }

  /// Starts a part, again too.
  package func start(_ part: Part) throws {
    let weed = StorePrograms.weed ?? "weed"
    // Its own runtime would take every core from the tests.
    let process = try BackgroundProcess(
      [weed, "-logtostderr=true"] + arguments(part), environment: ["GOMAXPROCS": "2", "HOME": folder.path],
      folder: folder.path)
    processes.withLock { $0[part] = process }
  }

  /// Sends a signal to a part.
  package func signal(_ part: Part, _ number: Int32) { processes.withLock { $0[part] }?.signal(number) }

  /// Stops a part, and waits until it stands still.
  package func hold(_ part: Part) throws { try processes.withLock { $0[part] }?.standStill() }

  /// What a part wrote last, for a test's failure.
  package func words(_ part: Part) -> String {
    String((processes.withLock { $0[part] }?.standardErrorSoFar ?? "").suffix(2000))
  }

  /// Kills all of it and removes its folder. By SIGKILL: it takes its time over an orderly end, and a filer was seen to
  /// stay.
  package func stop() {
    for part in Part.allCases.reversed() { processes.withLock { $0[part] }?.terminate(grace: 0) }
    do { try folder.remove() } catch { Log.warning("\(error)") }
  }

  private func arguments(_ part: Part) -> [String] {
    let own = ports[part] ?? (0, 0)
    func address(_ part: Part) -> String {
      let (http, grpc) = ports[part] ?? (0, 0)
      return "127.0.0.1:\(http).\(grpc)"
    }
    let port = ["-port=\(own.http)", "-port.grpc=\(own.grpc)"]
    func volume(_ name: String) -> [String] {
      ["volume", "-ip=127.0.0.1"] + port + [
        "-dir=\(folder.file(name))", "-max=40", "-master=\(address(.master))", "-minFreeSpace=100MiB",
        "-preStopSeconds=0",
      ]
    }
    func gateway(_ name: String) -> [String] {
      ["s3", "-ip.bind=127.0.0.1"] + port + [
        "-port.iceberg=0", "-port.lance=0", "-filer=\(address(.filer))", "-config=\(folder.file("s3.json"))",
        "-localSocket=\(folder.file("\(name).sock"))", "-domainName=localhost",
      ]
    }
    switch part {
    case .master:
      // It tells its makers of itself by default.
      return ["master", "-ip=127.0.0.1"] + port + [
        "-mdir=\(folder.file("m"))", "-peers=none", "-volumeSizeLimitMB=64", "-volumePreallocate=false",
        "-defaultReplication=000", "-telemetry=false",
      ]
    case .volume1: return volume("v1")
    case .volume2: return volume("v2")
    case .filer:
      return ["filer", "-ip=127.0.0.1"] + port + [
        "-master=\(address(.master))", "-defaultStoreDir=\(folder.file("f"))", "-localSocket=\(folder.file("f.sock"))",
      ]
    case .gateway1: return gateway("s1")
    case .gateway2: return gateway("s2")
    }
  }

  private static let identities = """
    {"identities":[
    {"name":"node","credentials":[{"accessKey":"\(StoreKeys.key)","secretKey":"\(StoreKeys.secret)"}],
    "actions":["Admin","Read","List","Write"]},
    {"name":"guest","credentials":[{"accessKey":"\(StoreKeys.guestKey)","secretKey":"\(StoreKeys.guestSecret)"}],
    "actions":["Read:\(StoreKeys.bucket)","List:\(StoreKeys.bucket)"]}]}
    """
}

/// `rclone serve s3` of a temporary folder with the bucket: a dialect of S3 that ignores conditions. ``stop()`` must be
/// called.
package final class RcloneStore: Sendable {
  private let folder: TemporaryFolder
  private let port: UInt16
  private let process: BackgroundProcess

  package init() throws {
    guard let rclone = StorePrograms.rclone else { throw StoreFailure(description: StorePrograms.noRclone) }
    let folder = try TemporaryFolder()
    self.folder = folder
    port = try freePort()
    try folder.makeFolder("data/\(StoreKeys.bucket)")
    process = try BackgroundProcess(
      [
        rclone, "serve", "s3", "--addr", "127.0.0.1:\(port)", "--auth-key", "\(StoreKeys.key),\(StoreKeys.secret)",
        folder.file("data"),
      ],
      environment: ["RCLONE_CONFIG": folder.file("none.conf"), "HOME": folder.path, "GOMAXPROCS": "2"])
    guard process.waitForOutput("Starting s3 server") else {
      let words = process.standardErrorSoFar
      stop()
      throw StoreFailure(description: "rclone does not start: \(words)")
    }
  }

  package var endpoint: String { "http://127.0.0.1:\(port)" }

  package func stop() {
    process.terminate(grace: 0)
    do { try folder.remove() } catch { Log.warning("\(error)") }
  }
}

/// Lends a SeaweedFS and stops it afterwards. A part ends at once if another process took its port since it was found
/// free; then all of it is started anew, on other ports.
package func withSeaweed<Result>(_ body: (SeaweedStore) throws -> Result) throws -> Result {
  let store = try startedSeaweed(attempts: 3)
  defer { store.stop() }
  return try body(store)
}

private func startedSeaweed(attempts: Int) throws -> SeaweedStore {
  do {
    return try SeaweedStore()
  } catch let failure as StoreFailure where failure.hasEnded && attempts > 1 {
    Log.warning("\(failure)")
    return try startedSeaweed(attempts: attempts - 1)
  }
}

/// Lends an `rclone serve s3` and stops it afterwards.
package func withRcloneStore<Result>(_ body: (RcloneStore) throws -> Result) throws -> Result {
  let store = try RcloneStore()
  defer { store.stop() }
  return try body(store)
}
