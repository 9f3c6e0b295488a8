import Glibc
import TestSupport

/// Statuses and redirects.
enum StatusFaults {
  static let all: [FaultCase] = passing + lasting + refusals + redirects + pages

  static let passing: [FaultCase] =
    [500, 502, 503, 504, 408, 429].map { .faults("\($0) twice, then well", [.status($0)], next: 2, .bytes) } + [
      .faults("429 with a second to wait", [.status(429, retryAfter: .seconds(1))], next: 1, .bytes),
      .faults("503 with a date to wait for", [.status(503, retryAfter: .date(secondsAhead: 2))], next: 1, .bytes),
      .faults("500 with a second to wait", [.status(500, retryAfter: .seconds(1))], next: 2, .bytes),
      .faults("429 with a date to wait for", [.status(429, retryAfter: .date(secondsAhead: 2))], next: 1, .bytes),
      .from(1, "503 twice, in the middle", [.status(503)], next: 2, .bytes),
      .faults("503 with nonsense to wait for", [.status(503, retryAfter: .text("soon"))], next: 1, .bytes),
    ]

  static let lasting: [FaultCase] =
    [500, 502, 503, 504, 408, 429].map { .faults("\($0) for ever", [.status($0)], .errors([ETIMEDOUT])) } + [
      .faults("429 with a second to wait, for ever", [.status(429, retryAfter: .seconds(1))], .errors([ETIMEDOUT])),
      .faults(
        "503 with a date to wait for, for ever", [.status(503, retryAfter: .date(secondsAhead: 2))],
        .errors([ETIMEDOUT])),
      .from(1, "500 for ever, in the middle", [.status(500)], .errors([ETIMEDOUT])),
      .faults(
        "503 with an hour to wait", [.status(503, retryAfter: .seconds(3600))], .errors([ETIMEDOUT]), .never,
        mostRequests: 3),
    ]

  /// EACCES and EIO, at once.
  static let refusals: [FaultCase] = [(401, EACCES), (403, EACCES), (404, EIO), (410, EIO), (451, EIO)].flatMap {
    status, code -> [FaultCase] in
    [
      .faults("\(status) at first", [.status(status)], timeout: 60, .errors([code]), .opened),
      .from(1, "\(status) in the middle", [.status(status)], .errors([code]), .opened),
    ]
  }

  static let redirects: [FaultCase] =
    [301, 302, 303, 307, 308].map { status in
      FaultCase("\(status) to another host", .bytes) { stage in
        let other = try stage.addOrigin(size: stage.origin.resource(FaultStage.path)?.size ?? 0)
        stage.origin.fault(.redirect(status, to: other.url(FaultStage.path)), path: FaultStage.path)
      }
    } + [
      FaultCase("a relative redirect", .bytes) { stage in
        stage.origin.set("/media/real.mp4", OriginResource(size: 1 << 20, pattern: FaultStage.path, type: "video/mp4"))
        stage.origin.fault(.redirect(302, to: "real.mp4?token=1"), path: FaultStage.path)
      },
      FaultCase("a redirect whose target expires", .bytes) { stage in
        for number in 0..<40 {
          stage.origin.set(
            "/link/\(number)", OriginResource(size: 1 << 20, pattern: FaultStage.path, type: "video/mp4"))
        }
        stage.origin.decide { request in
          if request.path == FaultStage.path { return [.redirect(302, to: "/link/\(request.indexOfPath)")] }
          return request.indexOfPath > 2 ? [.status(403)] : []
        }
      },
      FaultCase("a redirect to another host, in the middle", .bytes) { stage in
        let other = try stage.addOrigin(size: 1 << 20)
        stage.origin.decide { $0.firstByte > 0 ? [.redirect(302, to: other.url(FaultStage.path))] : [] }
      },
      FaultCase("a redirect to and fro between two hosts", timeout: 60, .errors([EIO]), .opened) { stage in
        let other = try stage.addOrigin(size: 1 << 20)
        stage.origin.fault(.redirect(302, to: other.url(FaultStage.path)))
        other.fault(.redirect(302, to: stage.origin.url(FaultStage.path)))
      },
      FaultCase("eleven redirects", timeout: 60, .errors([EIO]), .opened) { stage in
        stage.origin.decide { request in
          let step = Int(request.target.split(separator: "=").last ?? "") ?? 0
          return step < 11 ? [.redirect(302, to: "?step=\(step + 1)")] : []
        }
      },
      .faults("a redirect to itself", [.redirectLoop()], timeout: 60, .errors([EIO]), .opened),
      .faults("a redirect to a file", [.redirect(302, to: "file:///etc/passwd")], timeout: 60, .errors([EIO]), .opened),
      .faults(
        "a redirect to FTP", [.redirect(302, to: "ftp://127.0.0.1/film.mp4")], timeout: 60, .errors([EIO]), .opened),
      .faults("a redirect to nowhere", [.status(302)], timeout: 60, .errors([EIO]), .opened),
    ]

  static let pages: [FaultCase] = [
    .faults("a page of HTML once", [.page()], next: 1, .bytes),
    .faults("a page of HTML for an hour", [.page()], .errors([ETIMEDOUT])),
    .from(1, "a page of HTML for an hour, in the middle", [.page()], .errors([ETIMEDOUT])),
    FaultCase("a page of HTML once, in the middle", .bytes) { stage in
      stage.origin.decide { $0.indexOfPath == 2 ? [.page()] : [] }
    },
  ]
}
