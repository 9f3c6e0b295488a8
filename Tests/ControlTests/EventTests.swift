import Base
import Glibc
import Testing

@testable import Control

/// Clients that listen to events: each gets all of them, and one that does not read holds nobody.
@Suite struct EventTests {
  /// Listens on a thread of its own, until `last` has come.
  private final class Listener: Sendable {
    let told = Lock<[ControlEvent]>([])
    let end = Lock<Result<Bool, ControlFailure>?>(nil)
    private let thread: OwnedThread

    init(_ server: RunningServer, until last: String) throws {
      let store = server.folder.path
      let isReady = Signal()
      let (told, end) = (told, end)
      thread = OwnedThread(name: "listener") {
        do throws(ControlFailure) {
          let client = try ControlClient.connect(store: store)
          let result = try client.events(isReady: { isReady.raise() }) { event in
            told.withLock { $0.append(event) }
            return event.path != last
          }
          end.withLock { $0 = .success(result) }
        } catch {
          end.withLock { $0 = .failure(error) }
        }
      }
      try #require(isReady.wait(seconds: 30))
    }

    func join() { thread.join() }
  }

  private func event(_ number: Int) -> ControlEvent { ControlEvent(.complete, at: 1, path: "\(number)", bytes: 5) }

  @Test func everyClientGetsEveryEventInItsOrder() throws {
    let server = try RunningServer()
    let hub = server.handler.events
    #expect(!hub.isHeard)
    let listeners = [try Listener(server, until: "99"), try Listener(server, until: "99")]
    #expect(hub.isHeard)
    let events = (0..<100).map(event)
    for event in events { hub.post(event) }
    for listener in listeners {
      listener.join()
      #expect(listener.told.withLock { $0 } == events)
    }
    // The server notices that they are gone.
    let deadline = Instant.now.adding(seconds: 30)
    while hub.isHeard, Instant.now < deadline { usleep(5000) }
    #expect(!hub.isHeard)
  }

  @Test func anEventComesBackAsItWasSent() throws {
    let event = ControlEvent(.lost, at: 12.5, message: "\"\n", count: 3)
    let json = String(decoding: try event.json(), as: UTF8.self)
    #expect(json == #"{"at":12.5,"bytes":null,"count":3,"event":"lost","message":"\"\n","path":null}"#)
    #expect(try decodeLine(ControlEvent.self, Array(json.utf8)) == event)
  }

  @Test func aClientThatStopsReadingLosesEventsAndIsTold() throws {
    let server = try RunningServer(patience: 1)
    let hub = server.handler.events
    let lazy = try server.connect()
    try lazy.send(ControlRequest(.events))
    #expect(try lazy.next(.listening).reply == .listening)
    let other = try Listener(server, until: "last")
    // Far more than its socket's buffer and its queue hold; longer than a client may otherwise not read.
    let text = String(repeating: "x", count: 900)
    for number in 0..<4000 { hub.post(ControlEvent(.failing, at: 1, path: "\(number)", message: text)) }
    usleep(1_500_000)
    // Others are served, and hear all that their own queue takes.
    #expect(try server.connect().hello().program == "test")
    hub.post(event(4000))
    hub.post(ControlEvent(.rule, at: 1, path: "last"))
    var seen: [Int] = []
    var lost = 0
    while seen.count + lost < 4001 {
      let told = try #require(try lazy.next(.event).event)
      if told.kind == .lost {
        lost += try #require(told.count)
      } else if let number = told.path.flatMap({ Int($0) }) {
        #expect(number == seen.count + lost, "what is lost lies before it")
        seen.append(number)
      } else {
        break
      }
    }
    #expect(lost > 0 && seen.count >= EventQueue.most && seen.first == 0, "\(seen.count) and \(lost)")
    // It goes on.
    hub.post(ControlEvent(.new, at: 1, path: "again"))
    var last: ControlEvent?
    while last?.path != "again" { last = try lazy.next(.event).event }
    hub.close()
    other.join()
  }

  @Test func clientsThatListenLeaveRoomForOthers() throws {
    let server = try RunningServer()
    var clients: [ControlClient] = []
    for _ in 0..<ControlLimits.listeners {
      let client = try server.connect()
      try client.send(ControlRequest(.events))
      _ = try client.next(.listening)
      clients.append(client)
    }
    let more = try server.connect()
    do throws(ControlFailure) {
      _ = try more.events(isReady: {}, { _ in true })
      Issue.record("one too many")
    } catch { #expect(error.kind == .busy && error.message.contains("listen")) }
    #expect(try more.hello().program == "test")
    // One that sends something listens no more, and there is room again.
    try clients[0].send(ControlRequest(.hello))
    #expect(try clients[0].next(.hello).reply == .hello)
    try more.send(ControlRequest(.events))
    #expect(try more.next(.listening).reply == .listening)
  }

  @Test func theServersEndIsTold() throws {
    let server = try RunningServer()
    let listener = try Listener(server, until: "never")
    server.handler.events.close()
    listener.join()
    #expect(listener.end.withLock { end in if case .success(false)? = end { true } else { false } })
    // No client can hold the server's end, whether it reads or not.
    let lazy = try server.connect()
    do throws(ControlFailure) {
      _ = try lazy.events(isReady: {}, { _ in true })
      Issue.record("a server that ends takes no listener")
    } catch { #expect(error.kind == .busy) }
    server.listener.stop()
  }

  @Test func numbersAreTextOnly() throws {
    let server = try RunningServer()
    #expect(try server.connect().metrics() == "mediafs_up 1\n")
    server.handler.state.withLock { $0.metrics = "mediafs_up \u{1B}[2J\n" }
    #expect(throws: ControlFailure.self) { _ = try server.connect().metrics() }
  }
}
