// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing
import UntrustedText

/// The clock of a room that is behind the room's own posts, as its answers to logins show it. Pure.
struct SlowRoomClock {
  private var told: (time: UInt32, at: MonotonicTime)
  /// The newest message, of anybody, when the clock was first seen so.
  let message: Int64

  /// In seconds: answers take their time, and clocks drift.
  private static let tolerance: Int64 = 120

  init(_ time: UInt32, at now: MonotonicTime, message: Int64) {
    told = (time, now)
    self.message = message
  }

  /// False: meanwhile it was set, or the room was started anew.
  mutating func runsOn(to time: UInt32, at now: MonotonicTime) -> Bool {
    guard abs(Int64(time) - expected(at: now)) <= Self.tolerance else { return false }
    told = (time, now)
    return true
  }

  private func expected(at now: MonotonicTime) -> Int64 { Int64(told.time) + Int64((now - told.at).inSeconds) }

  /// No post that was made since is later.
  func latest(at now: MonotonicTime) -> UInt32 { UInt32(clamping: expected(at: now) + Self.tolerance) }
}

/// A login carries the time of the newest post that the radio ever had from the room, and the room sends what is newer:
/// nothing, if its clock was set back since. A sign of life with another time replaces that of the login.
/// Source: firmware `BaseChatMesh.cpp`, `sendLogin`; `simple_room_server/MyMesh.cpp`, `REQ_TYPE_KEEP_ALIVE`.
extension RoomKeeping {
  /// In seconds. Posts and answers may overtake each other.
  private static let leastLag: UInt32 = 60
  /// How often the room is asked for its posts after a login, if it does not acknowledge that.
  private static let mostCalls = 3
  /// How often that waits for a post of ours.
  private static let mostPostWaits = 30
  /// The answer to a flooded login brings a path, which the sign of life needs; and then the room gets one, for its
  /// acknowledgement.
  private static let untilPath: Duration = .seconds(10)

  /// The room has answered a login, and told its time.
  func told(_ time: UInt32, _ contact: Contact) {
    let (key, store) = (contact.key, messenger.store)
    catchUps.removeValue(forKey: key)?.cancel()
    // Without the store there is no post to compare with.
    guard let newest = store.ifReadable({ try store.newestPost(of: key.prefix) }), newest > time,
      newest - time > Self.leastLag
    else {
      clocks[key] = nil
      return
    }
    if var clock = clocks[key], clock.runsOn(to: time, at: loop.now) {
      clocks[key] = clock
    } else {
      let last = store.ifReadable({ try store.lastMessageID() }) ?? 0
      clocks[key] = SlowRoomClock(time, at: loop.now, message: last)
      let name = contact.name.string
      log.warning(
        "room \(name): its clock is behind its own posts, so it would send no new ones: it is asked for them after "
          + "each login. Set its clock: meshpost node clock \(Escaping.argument(name)) --set")
    }
    // `try?`: the link is down, or another login has begun it anew.
    catchUps[key] = loop.begin { try? await self.catchUp(key) }
  }

  private func catchUp(_ key: PublicKey) async throws(CancellationError) {
    let store = messenger.store
    var (calls, waits, wasAsked) = (0, 0, false)
    while calls < Self.mostCalls {
      try await loop.sleep(for: Self.untilPath)
      guard let stored = store.ifReadable({ try store.contact(key) }), stored.onRadio, let clock = clocks[key] else {
        return catchUps[key] = nil
      }
      // The room would ignore a post that is under way, which is older.
      if messenger.session.hasTransmitted(to: key), waits < Self.mostPostWaits {
        waits += 1
        continue
      }
      calls += 1
      let asked = loop.now
      var isAsked = false
      let (first, latest) = (clock.message, clock.latest(at: asked))
      // 1: all that the room has. What came before is not stored again.
      let since = store.ifReadable({ try store.newestPost(of: key.prefix, after: first, notAfter: latest) }) ?? 1
      // It takes no flooded sign of life.
      if stored.contact.outPath != nil {
        let answer = try await result { () async throws(Refusal) in
          try await service.askOnce(.postsSince(since), stored.contact, .relayed)
        }
        switch answer {
        case .success: (isAsked, wasAsked) = (true, true)
        case .failure(let refusal): log.info("room \(stored.contact.name.string): \(refusal)")
        }
      }
      try await loop.sleep(for: Self.patience)
      // Another answer of a room that was not asked for its posts says nothing of them.
      if isAsked, hasKnownUs(key, since: asked) {
        catchUps[key] = nil
        return
      }
    }
    catchUps[key] = nil
    let words =
      wasAsked ? "has not acknowledged that it is asked for its posts" : "could not be asked for its posts along a path"
    log.warning(
      "a room whose clock was set back (\(key.prefix.hex)) \(words): set its clock, or remove it from the radio's "
        + "contacts and add it again")
  }
}
