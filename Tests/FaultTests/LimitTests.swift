import Base
import Glibc
import TestSupport
import Testing

/// The bounds that a user sets: `--limit-rate`, `--max-connections`.
@Suite("Bounds of the line")
struct LimitTests {
  private static func addFiles(_ count: Int, size: Int64, to stage: FaultStage, url: String) {
    stage.manifest = ""
    for number in 0..<count {
      stage.origin.set("/\(number).bin", OriginResource(size: size, pattern: "/\(number).bin"))
      stage.manifest += "\(url)/\(number).bin\n"
    }
  }

  /// Starts a reader for each file; how many bytes each has got.
  private static func read(_ count: Int, _ mount: FaultMount) -> Lock<[Int64]> {
    let progress = Lock([Int64](repeating: 0, count: count))
    for number in 0..<count {
      Reader.detached {
        let descriptor = open(mount.file("\(number).bin"), O_RDONLY | O_CLOEXEC)
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while descriptor >= 0 {
          let got = Glibc.read(descriptor, &buffer, buffer.count)
          if got <= 0 { break }
          progress.withLock { $0[number] += Int64(got) }
        }
        close(descriptor)
      }
    }
    return progress
  }

  enum Origins: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case ranges, whole
    var testDescription: String { rawValue }
  }

  /// What the sockets' buffers take counts as sent: the first seconds do not count.
  @Test("--limit-rate holds for all files and readers together", arguments: Origins.allCases)
  func rate(origins: Origins) async {
    let limit = 1 << 20
    let count = 6
    await onMount(options: ["--timeout", "100", "--limit-rate", "\(limit)", "--continue=always"]) { stage in
      Self.addFiles(count, size: 64 << 20, to: stage, url: stage.origin.url())
      if origins == .whole { stage.origin.fault(.ignoreRange(), .noAcceptRanges) }
      // What the system's buffers hold would hide the rate.
      stage.origin.configure { $0.sendBuffer = 16 << 10 }
    } _: { scene in
      let progress = Self.read(count, scene.mount)
      sleep(seconds: 2)
      // Buffers that grow, because the server waits for a processor, count as sent too. They grow once.
      var rate = Double.infinity
      for _ in 0..<4 where rate >= 1.15 * Double(limit) {
        let (start, before) = (Instant.now, scene.origin.log.totals.bytesSent)
        sleep(seconds: 10)
        rate = Double(scene.origin.log.totals.bytesSent - before) / Instant.now.seconds(since: start)
      }
      // Never more. Less only means that the machine has other work, or that hardly anything comes at all.
      scene.expect(rate < 1.15 * Double(limit), "\(Int(rate)) bytes a second, more than \(limit)")
      scene.expect(rate > 0.2 * Double(limit), "only \(Int(rate)) bytes a second of \(limit)")
      let read = progress.withLock { $0 }
      scene.expect(read.reduce(0, +) > 0, "nobody got anything: \(read)")
      scene.mount.end()
    }
  }

  @Test("--max-connections of HTTP/1.1: never more", arguments: [1, 3])
  func connections(limit: Int) async {
    let count = 24
    let options = ["--timeout", "100", "--max-connections", "\(limit)", "--continue=always"]
    await onMount(options: options) { stage in
      Self.addFiles(count, size: 1 << 20, to: stage, url: stage.origin.url())
      stage.origin.configure { $0.latency = 0.02 }
    } _: { scene in
      let (mount, origin) = (scene.mount, scene.origin)
      let outcomes = Reader.sideBySide(
        timeout: FaultRun.bound,
        (0..<count).map { number in { Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin") } })
      scene.expect(outcomes.allSatisfy { $0?.bytes == 1 << 20 && $0?.wrongAt == nil }, "\(outcomes)")
      let totals = origin.log.totals
      scene.expect(totals.peakConnections == limit, "\(totals)")
    }
  }

  @Test("An origin that answers 503 above four connections is asked over fewer")
  func pushedBack() async {
    let count = 40
    await onMount(options: ["--timeout", "100", "--continue=never"]) { stage in
      Self.addFiles(count, size: 512 << 10, to: stage, url: stage.origin.url())
      stage.origin.configure {
        $0.latency = 0.05
        $0.maxConnections = 4
        $0.aboveMaximum = .serviceUnavailable
      }
    } _: { scene in
      let mount = scene.mount
      let outcomes = Reader.sideBySide(
        timeout: FaultRun.bound,
        (0..<count).map { number in { Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin") } })
      scene.expect(outcomes.allSatisfy { $0?.bytes == 512 << 10 && $0?.wrongAt == nil }, "\(outcomes)")
      let totals = scene.origin.log.totals
      // How often the limit is found, and tried again, depends on how busy the machine is.
      scene.expect(totals.turnedAway <= 3 * count, "turned away: \(totals)")
    }
  }

  @Test("HTTP/2: one connection, and up to 64 streams", arguments: [nil, 2, 200])
  func streams(limit: Int?) async {
    let count = 150
    let nginx = Lock<Nginx?>(nil)
    let options = limit.map { ["--max-connections", "\($0)"] } ?? []
    await onMount(options: ["--timeout", "100", "--continue=never", "-v"] + options) { stage in
      let certificate = try TestCertificate(.good, in: stage.folder)
      let server = try stage.addNginx(certificate)
      nginx.withLock { $0 = server }
      stage.options += ["--cacert", certificate.authority]
      Self.addFiles(count, size: 128 << 10, to: stage, url: server.url())
      // The first one is answered at once. Then nobody is until as many have asked as may, and a second later: one more
      // would have asked by then.
      stage.origin.decide { [log = stage.origin.log] request in
        if request.path == "/0.bin" { return [] }
        _ = eventually(timeout: 60, interval: 0.05) { log.totals.peakRequests >= 64 }
        return [.delay(1)]
      }
    } _: { scene in
      let mount = scene.mount
      // The first answer tells that it is HTTP/2.
      let first = scene.bounded("a reader") { Reader.read(mount.file("0.bin"), pattern: "/0.bin") }
      scene.expect(first?.bytes == 128 << 10, "\(first.map { "\($0)" } ?? "")")
      let outcomes = Reader.sideBySide(
        timeout: FaultRun.bound,
        (1..<count).map { number in { Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin") } })
      scene.expect(outcomes.allSatisfy { $0?.bytes == 128 << 10 && $0?.wrongAt == nil }, "\(outcomes)")
      let peak = TransferEvent.peak(TransferEvent.events(mount.process.standardErrorSoFar))
      scene.expect(peak == 64, "\(peak) at once")
      let accesses = nginx.withLock { $0 }?.accesses ?? []
      let counts = TransferEvent.misordered(mount.process.standardErrorSoFar)
      scene.expect(counts.contains("0"), "nobody counted packets")
      let isHTTP2 = !accesses.isEmpty && accesses.allSatisfy { $0.version == "HTTP/2.0" }
      scene.expect(isHTTP2, "no HTTP/2; packets out of order: \(counts)")
      scene.expect(Set(accesses.map(\.connection)).count == 1, "not one connection")
    }
  }
}
