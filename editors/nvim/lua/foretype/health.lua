--- `:checkhealth foretype`
local M = {}

function M.check()
  local health = vim.health or require('health') -- the latter before 0.8
  local ok, bad, start = health.ok or health.report_ok, health.error or health.report_error, health.start or health.report_start
  local info = health.info or health.report_info
  start('foretype')
  local settings = require('foretype').settings
  if not settings then
    bad("not set up: require('foretype').setup()")
    return
  end
  info(vim.lsp.inline_completion and "Neovim's own inline completion, made safe to accept" or 'ghost text drawn by the plugin')
  local program = require('foretype.lsp').program(settings.cmd[1])
  if not program then
    bad(settings.cmd[1] .. " is no program: install Foretype (pip install 'foretype[local]') or set `cmd`")
    return
  end
  ok(program)
  local lsp = require('foretype.lsp')
  local client = lsp.client()
  if not client then
    info('no server: it starts with the first file of a language in `filetypes`')
    return
  end
  local answer = lsp.call(client, 'request_sync', 'foretype/status', vim.empty_dict(), 2000, 0)
  local status = answer and answer.result
  if not status then
    bad('the server runs, but does not answer')
  elseif status.state == 'ready' then
    ok('ready: ' .. status.model .. ' at ' .. status.gateway)
    for _, said in ipairs({ status.detail, status.advice }) do
      if said and said ~= '' then
        info(said)
      end
    end
  else
    bad(status.state .. ': ' .. status.detail)
  end
  for _, problem in ipairs(status and status.problems or {}) do
    bad(problem)
  end
end

return M
