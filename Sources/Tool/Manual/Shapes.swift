// SPDX-License-Identifier: MIT

import ControlShapes

/// The output of `--json` by command. Man pages, docs/json.md and the tests are made from it. A change to a listed field raises
/// `Shapes.version`.
enum Shapes {
  static let version = 1

  /// By command: the answer of a request, or an output of its own. Commands that are missing have no JSON output.
  static let commands = Dictionary(
    Route.allCases.map(\.request).flatMap { request in request.commands.map { ($0, request.answers[0]) } }
      + own.map { ($0, Answer.object($1)) }, uniquingKeysWith: { first, _ in first })

  private static let own: [String: any Sendable] = [
    "sent adopt": Shape.Adopted(), "sent cancel": Shape.Adopted(), "radio backup": Shape.BackedUp(),
    "radio restore": Shape.Restored(), "radio probe": Shape.Probed(), "map": Shape.Map(),
    "node snapshot": Shape.Snapshot(), "node diff": Shape.SnapshotDiff(), "chart signal": Shape.Chart(),
    "chart battery": Shape.Chart(), "chart traffic": Shape.Chart(), "chart clock": Shape.Chart(),
    "chart neighbours": Shape.Chart(), "chart noise": Shape.Chart(), "report": Shape.Report(),
    "capture": Shape.Captured(), "backup": Shape.Bytes(),
  ]

  /// Shapes that occur in other shapes only, and that of refusals.
  static let parts: [any Sendable] = [
    Shape.AccessEntry(), Shape.Advert(), Shape.AirtimeHour(), Shape.AirtimeUse(), Shape.AlertRule(), Shape.Allowance(),
    Shape.Attempt(), Shape.DeadLetter(), Shape.Finding(),
    Shape.FoundRadio(),
    Shape.Hop(), Shape.Lane(), Shape.Lanes(), Shape.LeftOut(), Shape.LinkState(), Shape.Messaging(), Shape.Neighbour(),
    Shape.Override(), Shape.Point(), Shape.Power(), Shape.Preset(), Shape.ProbedDevice(), Shape.Proxy(),
    Shape.Reaction(), Shape.Refusal(), Shape.Refused(), Shape.RemovedUpstream(), Shape.Sensor(), Shape.Series(),
    Shape.Setting(), Shape.SettingsChange(), Shape.SnapshotProgress(),
    Shape.RegionsOfRepeater(),
    Shape.Standing(), Shape.Store(), Shape.SurveyedNode(), Shape.Variable(), Shape.SyncState(), Shape.Way(),
    Shape.WayNode(), Shape.WayNodes(), Shape.Web(),
  ]
}
