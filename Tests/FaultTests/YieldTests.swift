import Base
import Glibc
import TestSupport
import Testing

/// While a reader waits on a line, nothing is asked for there that nobody waits for.
@Suite("Who waits goes first")
struct YieldTests {
  enum Line: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case plain = "HTTP/1.1"
    case http2 = "HTTP/2 over TLS"
    var testDescription: String { rawValue }
  }

  @Test("Seeks while another file is continued over the same line", arguments: Line.allCases)
  func seeks(line: Line) async {
    let size: Int64 = 64 << 20
    let seeks = 10
    let nginx = Lock<Nginx?>(nil)
    await onMount(size: size, options: ["--timeout", "60", "--continue=never", "-v"]) { stage in
      stage.origin.set("/rest.bin", OriginResource(size: size, pattern: "/rest.bin"))
      stage.origin.configure { $0.connectionRate = 1e6 }
      // A demand's answer takes long enough for many windows of the other file.
      stage.origin.decide { $0.path == FaultStage.path ? [.delay(0.3)] : [] }
      var url = stage.origin.url()
      if line == .http2 {
        let certificate = try TestCertificate(.good, in: stage.folder)
        let server = try stage.addNginx(certificate)
        nginx.withLock { $0 = server }
        stage.options += ["--cacert", certificate.authority]
        url = server.url()
      }
      stage.manifest = url + FaultStage.path + "\n" + url + "/rest.bin"
    } _: { scene in
      let (mount, origin) = (scene.mount, scene.origin)
      let rest = mount.file("rest.bin")
      _ = scene.bounded("an open") { Reader.read(rest, [], pattern: "/rest.bin") }
      try mount.fetch("rest.bin")
      for seek in 0..<seeks {
        let asked = origin.log.entries(of: "/rest.bin").count
        // In between it comes back.
        let goesOn = eventually(timeout: 60) { origin.log.entries(of: "/rest.bin").count >= asked + 4 }
        scene.expect(goesOn, "behind seek \(seek) nothing was continued")
        // Not at 0, where the kernel reads ahead: the rest is asked for when the reader has gone.
        let start = Int64(seek * 37 % 61 + 1) << 20
        let outcome = scene.read([ByteRange(at: start, count: 64 << 10)])
        scene.expect(outcome?.bytes == 64 << 10 && outcome?.wrongAt == nil, "\(outcome.map { "\($0)" } ?? "")")
      }
      let events = TransferEvent.events(mount.process.standardErrorSoFar)
      let demands = events.count { if case .asked(_, "demand", FaultStage.name) = $0 { true } else { false } }
      scene.expect(demands >= seeks, "\(demands) demands in the log")
      let continued = TransferEvent.continuations(events)
      scene.expect(continued >= 4 * seeks, "\(continued) windows were continued")
      let intrusions = TransferEvent.intrusions(events)
      scene.expect(
        intrusions.isEmpty,
        "asked for while a reader waited: \(intrusions) in\n\(mount.process.standardErrorSoFar.suffix(60_000))")
      if let nginx = nginx.withLock({ $0 }) {
        let accesses = nginx.accesses
        let counts = TransferEvent.misordered(mount.process.standardErrorSoFar)
        scene.expect(counts.contains("0"), "nobody counted packets")
        let isHTTP2 = !accesses.isEmpty && accesses.allSatisfy { $0.version == "HTTP/2.0" }
        scene.expect(isHTTP2, "no HTTP/2; packets out of order: \(counts)")
        scene.expect(Set(accesses.map(\.connection)).count == 1, "not one connection")
      }
    }
  }

  @Test("A reader whose file is redirected waits on the line that it is redirected to")
  func redirected() async {
    let size: Int64 = 64 << 20
    await onMount(size: 1 << 20, options: ["--timeout", "600", "--continue=never", "-v"]) { stage in
      let other = try stage.addOrigin(size: 1 << 20)
      other.set("/rest.bin", OriginResource(size: size, pattern: "/rest.bin"))
      other.configure { $0.connectionRate = 1e6 }
      other.decide { $0.path == FaultStage.path ? [.stallAfter(64 << 10)] : [] }
      stage.origin.fault(.redirect(302, to: other.url(FaultStage.path)))
      stage.manifest += "\n" + other.url("/rest.bin")
    } _: { scene in
      let (mount, other) = (scene.mount, scene.stage.others[0])
      let (film, rest) = (mount.file(FaultStage.name), mount.file("rest.bin"))
      _ = scene.bounded("an open") { Reader.read(rest, [], pattern: "/rest.bin") }
      try mount.fetch("rest.bin")
      let runs = eventually(timeout: 60) { other.log.entries(of: "/rest.bin").count >= 10 }
      scene.expect(runs, "nothing is continued")
      let outcome = Lock<ReadOutcome?>(nil)
      Reader.detached {
        let read = Reader.read(film, pattern: FaultStage.path)
        outcome.withLock { $0 = read }
      }
      let waits = eventually(timeout: 60) { other.log.bytesSent(of: FaultStage.path) >= 64 << 10 }
      scene.expect(waits, "the reader's file was not asked for")
      // Between its open and its read nobody waits: from some moment on there is nothing but the read.
      let continued = { TransferEvent.continuations(TransferEvent.events(mount.process.standardErrorSoFar)) }
      let standsBack = eventually(interval: 0) {
        let before = continued()
        sleep(seconds: 1)
        return continued() == before
      }
      scene.expect(standsBack, "what nobody waits for goes on beside the reader")
      let before = continued()
      sleep(seconds: 3)
      let events = TransferEvent.events(mount.process.standardErrorSoFar)
      scene.expect(before >= 5, "nothing was continued before")
      let intruding = TransferEvent.continuations(events) - before
      scene.expect(intruding == 0, "\(intruding) windows were asked for while the reader waited")
      other.clearFaults()
      other.dropConnections()
      let isServed = eventually(timeout: FaultRun.bound) { outcome.withLock { $0 != nil } }
      let read = outcome.withLock { $0 }
      scene.expect(isServed && read?.bytes == 1 << 20 && read?.wrongAt == nil, "\(read.map { "\($0)" } ?? "hangs")")
    }
  }
}
