--- `:ForetypeModel [NAME]`: the private gateway's model, chosen from a list.
local M = {}

local LIST, USE = 'foretype.models.list', 'foretype.models.use'

local function say(text, level)
  vim.notify('Foretype: ' .. text, level or vim.log.levels.INFO)
end

--- What fits on the command line: a longer message would wait for Enter.
local function fitting(text)
  local room = vim.o.columns - #'Foretype: ' - 14
  return vim.fn.strdisplaywidth(text) <= room and text or vim.fn.strcharpart(text, 0, room - 1) .. '…'
end

local function execute(command, arguments, answered)
  local lsp = require('foretype.lsp')
  local client = lsp.client()
  if not client then
    return say('no server runs; see :checkhealth foretype', vim.log.levels.WARN)
  end
  local function told(err, result)
    if err then
      say(err.message, vim.log.levels.WARN)
    elseif result and result ~= vim.NIL then
      answered(result)
    end
  end
  -- The buffer is no part of it; a client of 0.7 wants one all the same.
  lsp.call(client, 'request', 'workspace/executeCommand', { command = command, arguments = arguments }, told, 0)
end

--- One choice as a line.
local function line(row)
  local marks = {}
  for _, mark in ipairs({ { row.current, 'serves now' }, { row.proposed, 'proposed' }, { row.refused, row.refused } }) do
    if mark[1] and mark[1] ~= '' and mark[1] ~= vim.NIL then
      table.insert(marks, mark[2])
    end
  end
  return row.asked .. '  ' .. row.title .. ': ' .. row.detail .. (#marks > 0 and ' (' .. table.concat(marks, ', ') .. ')' or '')
end

--- Give the private gateway this model.
function M.use(name)
  say(fitting('taking ' .. name))
  execute(USE, { name }, function(taken)
    local measured = taken.measured and taken.measured ~= vim.NIL and ': ' .. taken.measured or ''
    say(fitting(taken.model .. ' serves' .. measured))
  end)
end

--- Show what there is to choose from.
function M.choose()
  execute(LIST, {}, function(listing)
    vim.ui.select(listing.rows, { prompt = 'Foretype: a model (now ' .. listing.current .. ')', format_item = line }, function(row)
      if row then
        M.use(row.asked)
      end
    end)
  end)
end

function M.setup()
  vim.api.nvim_create_user_command('ForetypeModel', function(given)
    if given.args ~= '' then
      M.use(given.args)
    else
      M.choose()
    end
  end, { nargs = '?', desc = "Choose the private gateway's model" })
end

return M
